"""Record types: how an instrument registers its own, and those that every run file has (header, event, end).

A registered type can be written to a run file (its kind) and stored in the ring (its slot number), and says
when its records happened. Codec, ring and timelines know a type by its registration alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, TypeAlias, TypeVar

from flagscale_perf.spine.slots import Bytes, Layout

SCHEMA_VERSION = 1
RUNNING = "running"  # as long as a process writes the run file
ELSEWHERE = "records are not here but in "  # how the event begins of what the disk did not take
KILLED = "killed"  # the reason of an end that a run did not record itself
NOT_KNOWN = "not known"  # no end was recorded, and nothing here says whether the run still lives
STOPPED = "stopped by the user"  # the reason of every end that `run.py action=stop` brought about
GOOD_ENDS = frozenset({"completed", STOPPED})  # need no investigation

# An instance of a registered type. NamedTuples and frozen dataclasses have no base class in common.
Record: TypeAlias = Any
_Type = TypeVar("_Type", bound=type)


class Place(NamedTuple):
    """When a record happened, on the monotonic clock of its run's header.

    Attributes:
        start_ns: when it began.
        duration_ns: how long it took; 0 for a moment.
    """

    start_ns: int
    duration_ns: int


@dataclass(frozen=True)
class RecordType:
    """A registered type.

    Attributes:
        type: a NamedTuple or a frozen dataclass.
        kind: its name in a run file; None if it is not written to one.
        layout: how it lies in a slot of the ring; None if it is not stored in one.
        start: field with the start: a monotonic mark, or Unix time if its name ends in `_wall_ns`; None if
            the record has no time of its own.
        duration: field with the duration; None for a moment.
    """

    type: type
    kind: str | None
    layout: Layout | None
    start: str | None
    duration: str | None


# tuple_of(A, values) makes the NamedTuple A of values in the order of its fields, in half the time
# that A itself takes: for what is made in every step.
tuple_of = tuple.__new__

TYPES: dict[type, RecordType] = {}
KINDS: dict[str, type] = {}


def record(
    kind: str | None = None, *, slot: int | None = None, start: str | None = None, duration: str | None = None
) -> Callable[[_Type], _Type]:
    """Registers a record type; `RecordType` explains the parameters; `slot` is its number in the ring.

    Codec and ring take everything else from the type's fields. A type with a `__post_init__` has it called
    for each record that is read, to check fields against each other; it raises ValueError.

    Raises TypeError for a field that cannot be stored in the ring, ValueError if kind, slot or a
    field's name is taken.
    """

    def register(record_type: _Type) -> _Type:
        """Adds the type to TYPES and KINDS."""
        if kind in KINDS:
            raise ValueError(f"kind {kind!r} is taken by {KINDS[kind].__name__}")
        if "kind" in record_type.__annotations__:
            raise ValueError(
                f"{record_type.__name__}.kind: a line of a run file has its kind under that name"
            )
        layout = None if slot is None else Layout(slot, record_type)
        for other in TYPES.values():
            if layout and other.layout and layout.slot == other.layout.slot:
                raise ValueError(f"slot {slot} is taken by {other.type.__name__}")
        TYPES[record_type] = RecordType(record_type, kind, layout, start, duration)
        if kind is not None:
            KINDS[kind] = record_type
        return record_type

    return register


def kind_of(record_type: type) -> str:
    """The type's kind in a run file. Raises KeyError if it has none."""
    kind = TYPES[record_type].kind
    if kind is None:
        raise KeyError(record_type)
    return kind


def room_of(record_type: type) -> int:
    """How many integers the last field of a ring record can hold; 0 where it holds none or one."""
    layout = TYPES[record_type].layout
    return layout.room if layout else 0


def place_of(record: Record, header: RunHeader) -> Place | None:
    """When the record of this run happened; None if it has no time of its own."""
    registered = TYPES[type(record)]
    if registered.start is None:
        return None
    start_ns: int = getattr(record, registered.start)
    if registered.start.endswith("_wall_ns"):
        start_ns += header.start_mono_ns - header.start_wall_ns
    return Place(start_ns, getattr(record, registered.duration) if registered.duration else 0)


@record("header", start="start_mono_ns")
@dataclass(frozen=True)
class RunHeader:
    """First record of a run file: what ran, on what, by which conventions.

    Attributes:
        schema_version: `SCHEMA_VERSION` of the writer.
        session_id: local start time `YYYYmmdd_HHMMSS`, with `_2`, `_3` ... where that second is taken.
        start_wall_ns: Unix time of the start.
        start_mono_ns: monotonic mark of the same instant.
        facts: flat, JSON-ready; the instrument fixes the keys.
        config: the options in force.
        instrument: what has recorded. Files of the first versions, which knew one instrument, do not say.
        host: name of the machine; None in files of the first versions, like the following.
        boot_id: see `clock.boot_id`.
        pid: of the process that is measured.
        pid_namespace: in which the pid counts; None where the system did not say, like the following.
        inode: number of the file that the header was written to, which no copy of it has.
    """

    schema_version: int
    session_id: str
    start_wall_ns: int
    start_mono_ns: int
    facts: dict[str, Any]
    config: dict[str, Any]
    instrument: str = "training"
    host: str | None = None
    boot_id: str | None = None
    pid: int | None = None
    pid_namespace: int | None = None
    inode: int | None = None

    def __post_init__(self) -> None:
        if self.schema_version > SCHEMA_VERSION:
            raise ValueError(
                f"schema version {self.schema_version} is newer than {SCHEMA_VERSION}: update flagscale_perf"
            )


@record("event", slot=2, start="at_ns")
class EventRecord(NamedTuple):
    """Something that happened once: a failure inside the monitor, a resume, a note.

    Attributes:
        name: one of "failure", "drop", "resume", "note", "clock", "suspect", "shed", "slow", "memory",
            "hardware", "rank", "standstill".
        at_ns: monotonic mark.
        iteration: the last finished iteration then; 0 before the first.
        text: one line for a human.
    """

    name: Annotated[str, Bytes(16)]
    at_ns: int
    iteration: int
    text: Annotated[str, Bytes(200)]


@record("clock", start="mono_ns")
@dataclass(frozen=True)
class ClockRecord:
    """Both clocks again, as in the header: every minute, when the wall clock was set, and at the end.

    Attributes:
        wall_ns: Unix time.
        mono_ns: monotonic mark of the same instant.
    """

    wall_ns: int
    mono_ns: int


@record("end", start="end_wall_ns")
@dataclass(frozen=True)
class RunEnd:
    """Last record of a run file; only events about trouble with the last writing may follow it. Missing while
    the run lives, or if the writer died with it.

    Attributes:
        reason: "completed", "exit CODE", "exception NAME", "interrupted", "killed" or "stopped by the user".
        end_wall_ns: Unix time.
        last_iteration: last finished iteration; 0 if none.
        dropped: records lost because the ring was full.
    """

    reason: str
    end_wall_ns: int
    last_iteration: int
    dropped: int
