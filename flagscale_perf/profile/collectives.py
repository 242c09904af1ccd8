"""A collective of this rank, and what takes several to know: ordinals, and bytes from the step with
shapes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from flagscale_perf.profile.operations import operation_of


@dataclass(frozen=True)
class Collective:
    """One operation of this rank: the fields of a `CollectiveRecord` known so far.

    Attributes:
        event: index of the call's event, whose module and phase are those of the operation; -1: a kernel that
            nobody on the host is known to have launched.
        executed: index of the event in which the host executes it, the call's own where there is no other;
            -1: a device does.
        op, call: names of what was executed and of what was called.
        start_ns, total_ns: of what was executed; of the call where that has no event of its own, and from the
            call on for point-to-point.
        group: text of a `Group`; "" where nobody says.
    """

    event: int
    op: str
    call: str
    start_ns: int
    total_ns: int
    group: str = ""
    group_size: int | None = None
    sequence: int | None = None
    ordinal: int = 0
    peer: int | None = None
    is_send: int | None = None
    size_bytes: int | None = None
    exposed_ns: int | None = None
    executed: int = field(default=-1, compare=False)

    @property
    def operation(self) -> str:
        """The operation executed, or the one called if the execution's name does not tell."""
        return operation_of(self.op) or operation_of(self.call)


def numbered(window: Iterable[Collective]) -> list[Collective]:
    """A window's collectives of all steps in order, each with its ordinal."""
    seen: Counter[tuple[str, str, int | None]] = Counter()
    found = []
    for each in window:
        key = each.group, each.op, each.peer
        found.append(replace(each, ordinal=seen[key]))
        seen[key] += 1
    return found


def filled(step: Sequence[Collective], shaped: Sequence[Collective]) -> list[Collective]:
    """A step's collectives with bytes and peers from the step with shapes, where they are otherwise unknown:
    the n-th run of a call there is the n-th here. If the two steps do not make the same calls, nothing is
    taken over.
    """

    def keys(collectives: Sequence[Collective]) -> list[tuple[str, str, int]]:
        seen: Counter[tuple[str, str]] = Counter()
        found = []
        for each in collectives:
            key = each.call, each.operation
            found.append((*key, seen[key]))
            seen[key] += 1
        return found

    here, there = keys(step), dict(zip(keys(shaped), shaped, strict=True))
    if set(here) != set(there):
        return list(step)
    return [
        replace(
            each,
            size_bytes=there[key].size_bytes if each.size_bytes is None else each.size_bytes,
            peer=there[key].peer if each.peer is None else each.peer,
        )
        for key, each in zip(here, step, strict=True)
    ]
