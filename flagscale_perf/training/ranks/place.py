"""A process's place in its training, read from the launcher's environment variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from flagscale_perf.spine.peers.handover import job_key

# The ranks of one start of one job have these in common, and no other job of this user has them at that time.
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
        local_world_size: how many these are; None where the launcher does not say.
        key: the same for all ranks of one start of the job.
        node: what tells the ranks of two agents on one machine apart; "" where the launcher does not say.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int | None
    key: str
    node: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Place | None:
        """None without RANK, WORLD_SIZE and LOCAL_RANK, which torchrun sets."""
        try:
            rank, world_size, local_rank = (int(environ[name]) for name in _NEEDED)
            local = int(environ["LOCAL_WORLD_SIZE"]) if "LOCAL_WORLD_SIZE" in environ else None
        except (KeyError, ValueError):
            return None
        key = job_key(*(environ.get(name, "") for name in JOB_VARIABLES))
        return cls(rank, world_size, local_rank, local, key, environ.get("GROUP_RANK", ""))

    @property
    def has_other_nodes(self) -> bool:
        """Whether there are, or may be, ranks on other nodes."""
        return self.local_world_size is None or self.local_world_size < self.world_size

    @property
    def node_key(self) -> str:
        """The same for all ranks of its node."""
        return job_key(self.key, self.node)
