"""What an instrument says of its processes so that a node can gather them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from flagscale_perf.spine.peers.handover import Source

Owner = TypeVar("Owner")
Item = TypeVar("Item")


class Fold(Protocol[Item]):
    """Turns the records of one process into what the instrument keeps of them.

    Attributes:
        position: how far the process has got, e.g. its last iteration; reported when the process dies.
    """

    position: int

    def meet(self, source: Source) -> None:
        """The process itself, which can be asked something. Called once, before anything else."""

    def take(self, records: Sequence[Any]) -> list[Item]:
        """Items that the next records complete. Called in every cycle, also without records."""

    def request(self, content: Any) -> None:
        """A request of the gathering process to every fold (JSON types); may come more than once."""

    def notes(self) -> list[str]:
        """Reports about the process since the last call."""
        return []

    def close(self) -> list[Item]:
        """Items that are complete now that no more records follow. Called once."""
        return []


@dataclass(frozen=True)
class PeerKind(Generic[Owner, Item]):
    """The processes of one instrument.

    An owner is what is known of one process (host, device ...), an item what a `Fold` makes of its records.
    The owner comes with the ring, as JSON, and is not trusted.

    Attributes:
        decode_owner: from JSON types; raises ValueError for what the others cannot have made.
        name_of: the member name of the process that an owner is about.
        folds: what makes a fold for each of the processes that are drained together.
    """

    decode_owner: Callable[[Any], Owner]
    name_of: Callable[[Owner], str]
    folds: Callable[[], Callable[[Owner], Fold[Item]]]
