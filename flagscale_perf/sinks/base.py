"""What a sink is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol

from flagscale_perf.spine.records import RunHeader
from flagscale_perf.training.records import Record


@dataclass(frozen=True)
class SinkContext:
    """What every sink of a session knows.

    Attributes:
        header: of the session; a sink takes conventions, options and facts from it.
        directory: where the session's files are, absolute.
        emit: hands one line to the host's console; called only where an option asks for it.
        emit_figures: hands numbers by tag to the host's W&B run; the same holds for it.
        resumed: another process of this session wrote before; its files are there already.
        may_serve: this process is the writer's own, so a port may be opened in it.
    """

    header: RunHeader
    directory: Path
    emit: Callable[[str], None]
    resumed: bool = False
    may_serve: bool = False
    emit_figures: Callable[[dict[str, float]], None] = lambda figures: None


class Sink(Protocol):
    """One destination. It is dumb: it takes records in order and knows no other sink.

    `write` keeps the record in memory and fails only on a bug, or where too much waits already; `flush`
    brings everything kept to its place. A `flush` that raises OSError keeps what it could not bring there,
    and is called again later.

    Attributes:
        name: for messages.
        cost: what is missing while it fails, and what the user can do; one phrase.
        rebuilds: wants the records of a session's earlier process again.
    """

    name: ClassVar[str]
    cost: ClassVar[str]
    rebuilds: ClassVar[bool]

    @classmethod
    def open(cls, context: SinkContext) -> Sink | None:
        """The sink, or None where the options do not ask for it. Does no I/O. Raises ImportError for a
        missing package.
        """

    def write(self, record: Record) -> None:
        """Takes one record; those it has no use for, too."""

    def flush(self) -> None:
        """Brings everything to its place. Raises OSError."""

    def close(self) -> None:
        """Gives descriptors back; what is not flushed is lost. Again does nothing."""
