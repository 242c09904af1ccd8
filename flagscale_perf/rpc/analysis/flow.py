"""A session's calls as a flow: its callers, its server, and who waits for whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flagscale_perf.analysis.flows import Flow, Lane, Made, Place
from flagscale_perf.analysis.replays import engine
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import ALL_STAGES

CARRIED_SOONER = 0.5  # as much as the changes that findings advise save
_DOUBT = 0.25  # of what a call was at the server: how exactly it is known when
BETWEEN = "between"  # the caller's own work from one call to the next
NAMES = (*(stage.name for stage in ALL_STAGES), BETWEEN)
_NUMBER = {name: number for number, name in enumerate(NAMES)}
PHASES = {name: (number,) for name, number in _NUMBER.items()}


class Carried(NamedTuple):
    """A call, and the stretches in which it was carried."""

    call: CallRecord
    places: Sequence[Place]


@dataclass
class CallsFlow:
    """Calls that overlap are different threads' and lie in lanes of their own; a server that says how long it
    worked has lanes, too: as many as it did at a time.

    Attributes:
        flow: as it is replayed.
        carried: every call.
    """

    flow: Flow
    carried: list[Carried] = field(default_factory=list)

    def shorter(self, made: Made, saved_ns: Callable[[CallRecord], float]) -> Made:
        """The flow with every call carried in so much less time, at most in none."""
        lags_ns = [[*own] for own in made.lags_ns]
        for call, places in self.carried:
            took_ns = sum(lags_ns[lane][at] for lane, at in places)
            if took_ns > 0:
                factor = max(0.0, 1 - saved_ns(call) / took_ns)
                for lane, at in places:
                    lags_ns[lane][at] *= factor
        return made._replace(lags_ns=lags_ns)


def gained(calls: Sequence[CallRecord]) -> float | None:
    """Of what these calls, which may overlap, are carried sooner, the part by which all of them are done
    sooner; None where that is not known.
    """
    found, known = engine(), flow_of(calls, True, "")
    if found is None or not calls:
        return None
    made = found.made_of(known.flow)
    saved = {
        id(call): CARRIED_SOONER * sum(made.lags_ns[lane][at] for lane, at in places)
        for call, places in known.carried
    }
    sooner = known.shorter(made, lambda call: saved[id(call)])
    last = [max(map(max, found.ends_of(one))) for one in (made, sooner)]
    whole = sum(saved.values())
    return (last[0] - last[1]) / whole if whole > 0 else None


class _Lanes:
    """Lanes of what does not overlap, each taken again as soon as it is free."""

    def __init__(self, known: list[Lane]) -> None:
        self._known = known
        self._own: list[Lane] = []

    def take(self, free_ns: int, begin_ns: int) -> Lane:
        """The lane that was free last before `free_ns`, or a new one from `begin_ns` on."""
        free = [lane for lane in self._own if lane.end_ns <= free_ns]
        if free:
            return max(free, key=lambda lane: lane.end_ns)
        lane = Lane(len(self._known), begin_ns)
        self._known.append(lane)
        self._own.append(lane)
        return lane


class _Told(NamedTuple):
    """Of a call whose server says how long it worked: when, and the stretches beside that.

    Attributes:
        doubt_ns: the server may have begun, or been free, by so much later than is taken.
    """

    begins_ns: int
    ends_ns: int
    sent_ns: int
    way_ns: int
    doubt_ns: int
    sends: Place
    waits: Place
    carried: list[Place]


def flow_of(calls: Sequence[CallRecord], starts_known: bool, evidence: str) -> CallsFlow:
    """The flow of these calls, in the order of their starts. Where starts are not known, each follows the one
    before without a gap.
    """
    lanes: list[Lane] = []
    callers, servers = _Lanes(lanes), _Lanes(lanes)
    carried, told, units, until_ns = list[Carried](), list[_Told](), list[Place](), 0
    for call in sorted(calls, key=lambda each: each.start_ns) if starts_known else calls:
        start_ns = call.start_ns if starts_known else until_ns
        until_ns = start_ns + call.total_ns
        own = callers.take(start_ns, start_ns)
        own.add(_NUMBER[BETWEEN], start_ns)
        places = [*_carried(call, start_ns, own, told)]
        carried.append(Carried(call, told[-1].carried if call.server_ns is not None else places))
        units.append(own.add(_NUMBER["other"], until_ns))
    for one in sorted(told):
        _serve(one, lanes, servers)
    return CallsFlow(
        Flow(
            [lane.begin_ns for lane in lanes],
            [lane.stretches for lane in lanes],
            units,
            [(call.method, call.moved_bytes.bit_length()) for call, _ in carried],
            False,
            evidence,
        ),
        carried,
    )


def _carried(call: CallRecord, start_ns: int, own: Lane, told: list[_Told]) -> list[Place]:
    """Adds the caller's stretches until it can use the reply."""
    made_ns = start_ns + call.serialize_ns
    sent_ns = made_ns + call.send_ns
    wait_ns, queue_ns, worked_ns = call.wait_ns or 0, call.queue_ns or 0, call.server_ns or 0
    replied_ns = sent_ns + wait_ns + queue_ns + worked_ns
    usable_ns = replied_ns + call.receive_ns
    ends = {"serialize": made_ns, "send": sent_ns, "wait": replied_ns, "receive": usable_ns}
    ends["deserialize"] = usable_ns + call.deserialize_ns
    over_ns = start_ns + call.total_ns  # what stages say beyond that, they say wrongly
    places = [own.add(_NUMBER[name], min(end_ns, over_ns)) for name, end_ns in ends.items()]
    if call.server_ns is not None:  # of the wait, half is taken for the request's way, half for the reply's
        way_ns = wait_ns // 2
        begins_ns = sent_ns + way_ns + queue_ns
        doubt_ns = max(way_ns, round(_DOUBT * (queue_ns + worked_ns)))
        when = begins_ns, begins_ns + worked_ns, sent_ns, way_ns, doubt_ns
        told.append(_Told(*when, places[1], places[2], places))
    return places


def _serve(one: _Told, lanes: Sequence[Lane], servers: _Lanes) -> None:
    """Adds the server's side. What it queued behind is the call before, where there is one."""
    its = servers.take(one.begins_ns + one.doubt_ns, lanes[0].begin_ns)  # it was there before the first call
    one.carried.append(its.add(_NUMBER["wait"], one.sent_ns + one.way_ns, (one.sends,)))
    its.add(_NUMBER["queue"], one.begins_ns)
    caller = lanes[one.waits[0]]
    caller.waits(one.waits, [its.add(_NUMBER["server"], one.ends_ns)])
