"""Finds the collectives among a step's events, and all that is known about each on this rank.

An operation shows in several events: what the program calls, which may call others in turn (a functional
collective calls c10d's), and what a library's thread or the device then executes. It is counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from flagscale_perf.profile.events import Events, Nesting
from flagscale_perf.profile.flight import Flown, Groups, bytes_of
from flagscale_perf.profile.operations import (
    POINT_TO_POINT,
    Group,
    Named,
    Role,
    buffer_bytes,
    named,
    operation_of,
)

_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True)
class Collective:
    """One operation of this rank: the fields of a `CollectiveRecord` known so far.

    Attributes:
        event: index of the call's event, whose module and phase are those of the operation; -1: a kernel that
            no event on the host is known to have launched.
        executed: index of the event in which the host executes it, the call's own where there is no other;
            -1: a device does.
        op, call: names of what was executed and of what was called.
        start_ns, total_ns: of what was executed; of the call where that has no event of its own, and from the
            call on for point-to-point.
        group: text of a `Group`; "" where it is not known.
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
    everything = list(window)
    keys = [(each.group, each.op, each.peer) for each in everything]
    return [replace(each, ordinal=n) for each, (_, n) in zip(everything, _counted(keys), strict=True)]


def _counted(keys: Iterable[_Key]) -> list[tuple[_Key, int]]:
    """Each key with how many equal ones came before it."""
    seen: Counter[_Key] = Counter()
    found = []
    for key in keys:
        found.append((key, seen[key]))
        seen[key] += 1
    return found


def filled(step: Sequence[Collective], shaped: Sequence[Collective]) -> list[Collective]:
    """A step's collectives with bytes and peers from the step with shapes, where they are otherwise unknown:
    the n-th run of a call there is the n-th here. If the two steps do not make the same calls, nothing is
    taken over.
    """

    here, keys = (_counted((each.call, each.operation) for each in made) for made in (step, shaped))
    there = dict(zip(keys, shaped, strict=True))
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


_SLACK_NS = 20_000  # between the clocks of the flight recorder and of the profiler
_PIPELINE = "PIPELINE_MODEL_PARALLEL_GROUP"
_PEER = {1: "Dst Rank", 0: "Src Rank", None: ""}  # what NCCL's metadata calls it, by `is_send`


class _Call(NamedTuple):
    """A call that contains no other, and the outermost call around it."""

    event: int
    outer: int
    operation: str


def collectives_of(
    events: Events, nesting: Nesting, recorded: Sequence[Flown] = (), groups: Groups | None = None
) -> list[Collective]:
    """All collectives of a step, in the order of their calls; what of them is exposed comes later.

    Args:
        events: of the step. With `inputs` (the step with shapes), bytes and peers come from there.
        nesting: of these events.
        recorded: by the flight recorder (`flight.flown()`), for group, sequence and bytes.
        groups: of this process (`flight.groups()`).
    """
    return _Step(events, nesting, groups or Groups()).read(recorded)


class _Step:
    def __init__(self, events: Events, nesting: Nesting, groups: Groups) -> None:
        self._events, self._nesting, self._groups = events, nesting, groups
        self._pipeline = _pipeline_of(groups)
        self._end_ns = events.end_ns
        self._said: dict[int, Named] = {
            index: said for index, name in enumerate(events.names) if (said := named(name)) is not None
        }

    def read(self, recorded: Sequence[Flown]) -> list[Collective]:
        calls, executions = self._calls(), self._of_role(Role.EXECUTED)
        flown = self._flown_by_call(calls, recorded)
        known = {call.event for call in calls}
        kernels = self._kernels_by_call(known)
        found = []
        for call in calls:
            said = flown.get(call.event)
            execution = self._taken(executions, call, operation_of(said.op) if said else "")
            found.append(self._made(call, execution, kernels.pop(call.event, []), said))
        found += [  # but for a library's range that lies within a call: NCCL's, around the launch alone
            self._made(_Call(event, event, operation), None, [], None)
            for event, operation in executions
            if self._innermost(event, known) < 0
        ]
        found += [self._of_kernels(event, each) for event, each in kernels.items()]
        found.sort(key=lambda each: each.start_ns)
        return found

    def _start(self, event: int) -> int:
        return int(self._events.start_ns[event])

    def _of_role(self, role: Role) -> list[tuple[int, str]]:
        meant = [
            self._said[i].role is role if i in self._said else False for i in range(len(self._events.names))
        ]
        marked = np.flatnonzero(self._events.marked(meant)).tolist()
        return [(event, self._said[int(self._events.name[event])].operation) for event in marked]

    def _calls(self) -> list[_Call]:
        calls = dict(self._of_role(Role.CALL))
        outer: dict[int, int] = {}
        around: set[int] = set()
        for event in calls:  # outer ones come first
            parent = self._innermost(int(self._nesting.parent[event]), calls)
            outer[event] = outer[parent] if parent >= 0 else event
            around.add(parent)
        return [_Call(event, outer[event], calls[event]) for event in calls if event not in around]

    def _taken(self, executions: list[tuple[int, str]], call: _Call, wanted: str) -> int | None:
        """The event in which a library's thread executed a call: the first one since then of the operation
        called. Gloo executes a reduce_scatter as an all_reduce.
        """
        if "c10d" not in self._events.names[self._events.name[call.event]]:
            return None  # vLLM's own run in the call itself
        start_ns, alike = self._start(call.event), _alike(call.operation)
        for at, (event, operation) in enumerate(executions):
            if self._start(event) >= start_ns and (operation == wanted if wanted else operation in alike):
                del executions[at]
                return event
        return None

    def _innermost(self, event: int, meant: Container[int]) -> int:
        """The innermost of these events that is this one or holds it; -1 if none does."""
        while event >= 0 and event not in meant:
            event = int(self._nesting.parent[event])
        return event

    def _flown_by_call(self, calls: Sequence[_Call], recorded: Sequence[Flown]) -> dict[int, Flown]:
        waiting = [call for call in calls if call.operation not in POINT_TO_POINT]
        if not waiting:
            return {}
        first_ns, last_ns = self._start(waiting[0].event), int(self._end_ns[[c.event for c in waiting]].max())
        found: dict[int, Flown] = {}
        for each in recorded:
            if first_ns - _SLACK_NS <= each.asked_ns <= last_ns + _SLACK_NS:
                call = self._noted(waiting, each, 0) or self._noted(waiting, each, _SLACK_NS)
                if call is not None:
                    found[call.event] = each
                    waiting.remove(call)
        return found

    def _noted(self, waiting: Sequence[_Call], each: Flown, slack_ns: int) -> _Call | None:
        """The first call during which the flight recorder noted an operation of its sort."""
        for call in waiting:
            if self._start(call.event) > each.asked_ns + slack_ns:
                return None
            in_time = each.asked_ns <= int(self._end_ns[call.event]) + slack_ns
            if in_time and operation_of(each.op) in _alike(call.operation):
                return call
        return None

    def _kernels_by_call(self, known: Container[int]) -> dict[int, list[int]]:
        """The kernels that each call launched: those of a collective by their name, or all if none has such a
        name. A collective's kernel whose call is unknown is under -1 - its index.
        """
        kernels = self._events.kernels
        if kernels is None:
            return {}
        found: dict[int, list[int]] = {}
        is_collective = np.array([named(name) is not None for name in kernels.names], bool)[kernels.name]
        for kernel, launch in enumerate(kernels.event.tolist()):
            event = self._innermost(launch, known)
            if event >= 0:
                found.setdefault(event, []).append(kernel)
            elif is_collective[kernel]:
                found[-1 - kernel] = [kernel]
        return {event: [one for one in each if is_collective[one]] or each for event, each in found.items()}

    def _made(
        self, call: _Call, execution: int | None, kernels: Sequence[int], said: Flown | None
    ) -> Collective:
        names, event = self._events.names, call.event if execution is None else execution
        op = names[self._events.name[event]]
        start_ns, end_ns = self._start(event), int(self._end_ns[event])
        if kernels:
            op, start_ns, end_ns = self._span_of(kernels, op if execution is not None else "")
        operation = operation_of(op) or call.operation
        if operation in POINT_TO_POINT and not kernels:
            start_ns = min(start_ns, self._start(call.event))
        made = Collective(
            event=call.event,
            op=op,
            call=names[self._events.name[call.outer]],
            start_ns=start_ns,
            total_ns=end_ns - start_ns,
            is_send={"send": 1, "recv": 0}.get(call.operation),
            executed=-1 if kernels else event,
        )
        if said is not None:
            return replace(
                made,
                group=said.group,
                group_size=said.size,
                sequence=said.sequence,
                size_bytes=said.size_bytes,
            )
        made = self._with_parameters(made, call)
        return self._with_inputs(self._with_group(made), call, execution)

    def _of_kernels(self, event: int, kernels: Sequence[int]) -> Collective:
        op, start_ns, end_ns = self._span_of(kernels, "")
        return Collective(max(event, -1), op, "", start_ns, end_ns - start_ns)

    def _span_of(self, kernels: Sequence[int], op: str) -> tuple[str, int, int]:
        ran = self._events.kernels
        assert ran is not None
        index = np.array(kernels)
        name = op or ran.names[ran.name[index[0]]]
        return name, int(ran.start_ns[index].min()), int((ran.start_ns + ran.duration_ns)[index].max())

    def _with_parameters(self, made: Collective, call: _Call) -> Collective:
        for event, said in self._events.metadata.items():
            start_ns = self._start(event)
            if self._start(call.event) <= start_ns <= int(self._end_ns[call.event]):
                return self._of_parameters(made, said)
        return made

    def _of_parameters(self, made: Collective, said: Mapping[str, Any]) -> Collective:
        number = str(said.get("Process Group Name", "")).strip('"')
        group = self._groups.known.get(
            number, Group(str(said.get("Process Group Description", "")).strip('"'))
        )
        size, kind = said.get("Group size"), [str(said.get("dtype", ""))]
        given, out = (bytes_of([said.get(f"{way} msg nelems", 0)], kind) for way in ("In", "Out"))
        peer = said.get(_PEER[made.is_send])
        if isinstance(peer, int) and group.ranks is not None and peer in group.ranks:
            peer = group.ranks.index(peer)
        return replace(
            made,
            group=str(group),
            group_size=size,
            sequence=said.get("Seq"),
            peer=peer,
            size_bytes=buffer_bytes(made.operation, given, out, size),
        )

    def _with_group(self, made: Collective) -> Collective:
        """Adds the group of point-to-point operations over gloo, whose events name none."""
        if self._pipeline is None or made.group or made.operation not in POINT_TO_POINT:
            return made
        group = self._pipeline
        ranks, own = group.ranks or (), self._groups.rank
        other = 1 - ranks.index(own) if len(ranks) == 2 and own in ranks else None
        peer = other if made.peer is None else made.peer
        return replace(made, group=str(group), group_size=len(ranks), peer=peer)

    def _with_inputs(self, made: Collective, call: _Call, execution: int | None) -> Collective:
        """Adds what a step with shapes shows: the operation's tensors, and the peer."""
        inputs = self._events.inputs
        if inputs is None:
            return made
        values = inputs.values[call.event]
        peer = values[2] if made.is_send is not None and len(values) > 2 else None
        event = call.event if execution is None else execution
        given = bytes_of(*_tensors(inputs.shapes[event], inputs.dtypes[event]))
        if made.size_bytes is None and given:
            size = buffer_bytes(made.operation, given, 0, made.group_size)
            made = replace(made, size_bytes=size)
        return made if not isinstance(peer, int) else replace(made, peer=peer)


def _pipeline_of(groups: Groups) -> Group | None:
    """The pipeline's group, or the only one with more than one rank; None where neither tells it."""
    wide = [group for group in groups.known.values() if len(group.ranks or ()) > 1]
    likely = wide if len(wide) == 1 else [group for group in wide if group.name == _PIPELINE]
    return likely[0] if len(likely) == 1 else None


def _alike(operation: str) -> frozenset[str]:
    """The operations that may be executed for the operation called."""
    return frozenset({operation, "all_reduce"}) if operation == "reduce_scatter" else frozenset({operation})


def _tensors(shapes: Sequence[Any], types: Sequence[str]) -> tuple[list[Sequence[int]], list[str]]:
    sizes: list[Sequence[int]] = []
    kinds: list[str] = []
    for shape, kind in zip(shapes, types, strict=False):
        if kind in ("", "Scalar", "ScalarList"):
            continue
        tensors = shape if shape and isinstance(shape[0], (list, tuple)) else [shape]
        sizes += tensors
        kinds += [kind] * len(tensors)
    return sizes, kinds
