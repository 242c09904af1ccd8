"""Where a process stands in its job, as the launcher has told it in the environment."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import NamedTuple

# What the ranks of one start of one job have in common and no other job of the same user has at the same
# time.
JOB_VARIABLES = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "WORLD_SIZE",
)
_NEEDED = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


class Place(NamedTuple):
    """One rank's.

    Attributes:
        rank, world_size: of the job.
        local_rank: among the ranks of its node.
        local_world_size: how many these are; None where the launcher does not tell.
        key: the same for all ranks of one start of the job.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int | None
    key: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Place | None:
        """None where the environment does not tell it (RANK, WORLD_SIZE and LOCAL_RANK, as torchrun sets
        them).
        """
        try:
            rank, world_size, local_rank = (int(environ[name]) for name in _NEEDED)
            local = int(environ["LOCAL_WORLD_SIZE"]) if "LOCAL_WORLD_SIZE" in environ else None
        except (KeyError, ValueError):
            return None
        job = "\0".join([*(environ.get(name, "") for name in JOB_VARIABLES), str(os.getuid())])
        return cls(rank, world_size, local_rank, local, hashlib.sha256(os.fsencode(job)).hexdigest()[:16])

    @property
    def has_other_nodes(self) -> bool:
        """Whether there are, or may be, ranks on other nodes."""
        return self.local_world_size is None or self.local_world_size < self.world_size

    @property
    def ring_name(self) -> str:
        """What the shared memory of this rank's ring is called."""
        return f"{ring_prefix(self.key)}{self.rank}"


def ring_prefix(key: str) -> str:
    """How the names of all rings of one job begin."""
    return f"flagscale_perf.{key}."
