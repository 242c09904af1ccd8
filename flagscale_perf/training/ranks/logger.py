"""The training side of a rank other than 0: what it measures goes into a ring that others find."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.spine.peers.exchange import directory_of
from flagscale_perf.spine.peers.own import CollectorTask, OwnRing, new_ring, start_collector
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.kind import RANKS
from flagscale_perf.training.ranks.place import Place


class RankLogger(OwnRing):
    """What `PerfLogger` is for rank 0; its methods neither wait nor raise."""

    step = OwnRing.put  # under the name that the hooks call on every rank

    @classmethod
    def start(cls, place: Place, identity: RankIdentity, directory: str) -> RankLogger:
        """Makes the ring, and starts the collector of a node without rank 0; `directory` of the run's files.

        Raises OSError where there is no shared memory.
        """
        ring = new_ring(place.member, RANKS.encode_owner(identity))
        if place.local_rank == 0:
            exchange = directory_of(Path(directory).absolute(), RANKS.noun, place.key)
            task = CollectorTask(
                RANKS.path, place.key, place.member.name, place.local_world_size, str(exchange)
            )
            start_collector(task, RANKS.noun)
        return cls(ring)
