"""A rank of a bandwidth test whose messages are late: SLOW is 1 for all of rank 1, 0-2 for that link."""

from __future__ import annotations

import os
import sys
import time

import torch.distributed as dist

from flagscale_perf.bench.bandwidth import rank

LATE_S = 0.1
ENDS = [int(word) for word in os.environ["SLOW"].split("-")]
_plain = dist.batch_isend_irecv


def _late(wanted):
    ends = {dist.get_rank(), *(each.peer for each in wanted)}
    if set(ENDS) <= ends:
        time.sleep(LATE_S)
    return _plain(wanted)


dist.batch_isend_irecv = _late

if __name__ == "__main__":
    sys.exit(rank.main(sys.argv[1:]))
