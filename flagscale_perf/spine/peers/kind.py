"""What an instrument says about its processes so that they can be gathered."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

Owner = TypeVar("Owner")
Item = TypeVar("Item")


class Fold(Protocol[Item]):
    """Turns the records of one process into what the instrument keeps of them.

    Attributes:
        position: how far the process has got, e.g. its last iteration; reported when the process dies.
    """

    position: int

    def take(self, records: Sequence[Any]) -> list[Item]:
        """What the next records complete. Called in every cycle, also without records."""

    def request(self, content: Any) -> None:
        """A request of the gathering process to every fold (JSON types); may come more than once."""

    def notes(self) -> list[str]:
        """What there is to report about the process since the last call."""

    def close(self) -> list[Item]:
        """What is complete now that no more records come. Called once."""


@dataclass(frozen=True)
class PeerKind(Generic[Owner, Item]):
    """The processes of one instrument.

    An owner is what is known of one process (host, device ...), an item what a `Fold` makes of its records.
    Both travel as JSON between processes and nodes; what comes from there is not trusted.

    Attributes:
        path: where this object is found, "module:NAME", for a collector process.
        noun: what one process is called in messages, e.g. "rank".
        encode_owner, encode_item: to JSON types.
        decode_owner, decode_item: back; raise ValueError for what the others cannot have made.
        name_of: the member name of the process that an owner or an item is about.
        folds: what makes a fold for each of the processes that are drained together.
    """

    path: str
    noun: str
    encode_owner: Callable[[Owner], Any]
    decode_owner: Callable[[Any], Owner]
    encode_item: Callable[[Item], Any]
    decode_item: Callable[[Any], Item]
    name_of: Callable[[Owner | Item], str]
    folds: Callable[[], Callable[[Owner], Fold[Item]]]


def load_kind(path: str) -> PeerKind[Any, Any]:
    """The object at this path. Raises ImportError and AttributeError."""
    module, _, name = path.partition(":")
    kind: PeerKind[Any, Any] = getattr(importlib.import_module(module), name)
    return kind
