"""The training side of a rank other than 0: what it measures goes into a ring that it hands over."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.spine.peers.own import OwnRing
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.collector import CollectorTask, start_collector
from flagscale_perf.training.ranks.exchange import directory_of
from flagscale_perf.training.ranks.identity import content_of
from flagscale_perf.training.ranks.place import Place


class RankLogger(OwnRing):
    """The counterpart of `PerfLogger` on other ranks than 0; its methods neither wait nor raise."""

    @classmethod
    def start(cls, place: Place, identity: RankIdentity, directory: str) -> RankLogger:
        """Makes the ring, and starts the collector of a node without rank 0; `directory` of the run's files.

        Raises OSError where there is no shared memory, RuntimeError where there is no thread.
        """
        logger = cls.begin(place.node_key, content_of(identity))
        if place.local_rank == 0:
            exchange = directory_of(Path(directory).absolute(), place.key)
            rank, size = str(place.rank), place.local_world_size
            start_collector(CollectorTask(place.node_key, rank, size, str(exchange)))
        return logger
