#!/bin/sh
# Has Slurm start the job again where it hangs or has lost a rank. The job needs --requeue, and checkpoints.
case $(cat) in
    *'"finding":"hang","state":"begins"'* | *'"finding":"lost_rank","state":"begins"'*)
        exec scontrol requeue "$SLURM_JOB_ID"
        ;;
esac
