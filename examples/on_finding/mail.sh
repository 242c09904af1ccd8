#!/bin/sh
# Mails the finding to the address that is the argument.
{
    printf 'To: %s\nSubject: %s: a finding\n\n' "$1" "${SLURM_JOB_NAME:-training}"
    cat
} | sendmail -t
