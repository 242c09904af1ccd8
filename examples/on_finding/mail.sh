#!/bin/sh
# Mails the finding to the address that is the argument. A line of a mail has at most 998 bytes: a longer one is broken.
{
    printf 'To: %s\nSubject: %s: a finding\n\n' "$1" "${SLURM_JOB_NAME:-training}"
    fold -b -w 900
} | sendmail -t
