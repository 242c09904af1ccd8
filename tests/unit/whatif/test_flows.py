"""Flows replayed: to the nanosecond, against what their lanes would do by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.flows import Flow, Outcomes, Stretch
from flagscale_perf.analysis.predictions import Change, Doubt, MissingRecordError
from flagscale_perf.analysis.replays import NotKnownError
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif import flows

WORK, WAIT = 0, 1
PHASES = {"work": (WORK,), "wait": (WAIT,)}


def two_lanes(rounds: int = 10, other_ns: int = 700, own_ns: int = 300, way_ns: int = 50) -> Flow:
    """One works for `own_ns`, then waits for the other, which works all the time for `other_ns` a round."""
    own, other, now = list[Stretch](), list[Stretch](), 0
    for number in range(rounds):
        other.append(Stretch(WORK, (number + 1) * other_ns))
        now += own_ns
        own.append(Stretch(WORK, now))
        now = max(now, other[-1].end_ns) + way_ns
        own.append(Stretch(WAIT, now, ((1, number),)))
    units = [(0, 2 * number + 1) for number in range(rounds)]
    return Flow([0, 0], [own, other], units, ["round"] * rounds, False, f"{rounds} rounds")


def change(text: str, how: str = "*=") -> Change:
    name, value = text.split(how)
    return Change(name, how, value, "", "A")


def predicted(flow: Flow, *changes: Change) -> float:
    made = flows.made_of(flow)
    for each in changes:
        made = flows.resized(flow, made, each, PHASES)
    return flows.predict(flow, changes, Outcomes(made, []), Doubt()).predicted_ns


def test_what_was_recorded_comes_out_again() -> None:
    flow = two_lanes()
    ends = flows.ends_of(flows.made_of(flow))
    assert [[*map(float, own)] for own in ends] == [[one.end_ns for one in lane] for lane in flow.lanes]


@pytest.mark.parametrize(
    ("made", "changes"),
    [
        (two_lanes(way_ns=0), [change("wait=0", "=")]),
        (two_lanes(way_ns=25), [change("wait*=0.5")]),
        (two_lanes(own_ns=150, other_ns=350), [change("work*=0.5")]),
        (two_lanes(own_ns=800, other_ns=1200), [change("work+=500ns", "+=")]),
        (two_lanes(own_ns=200, other_ns=600, way_ns=100), [change("work-=100ns", "-="), change("wait*=2")]),
    ],
)
def test_a_change_is_as_the_flow_made_with_it(made: Flow, changes: list[Change]) -> None:
    lane, at = made.units[-1]
    assert predicted(two_lanes(), *changes) == made.lanes[lane][at].end_ns


def test_what_only_the_waiting_lane_does_gains_nothing() -> None:
    flow = two_lanes()
    made = flows.made_of(flow)
    idle = made._replace(
        lags_ns=[[lag if at % 2 else 0 for at, lag in enumerate(made.lags_ns[0])], made.lags_ns[1]]
    )
    found = flows.predict(flow, [change("work*=0")], Outcomes(idle, []), Doubt())
    assert (found.gain_ns, found.is_gain) == (0, False)


def test_what_ended_later_held_nothing_up() -> None:
    """A clock that is off by more than a message takes."""
    flow = two_lanes()
    late = [one._replace(end_ns=one.end_ns + 10**6) for one in flow.lanes[1]]
    made = flows.made_of(flow._replace(lanes=[flow.lanes[0], late]))
    assert not any(made.after[0])
    assert flows.ends_of(made)[0][-1] == flow.lanes[0][-1].end_ns


def test_parts_of_the_interval_are_the_alternatives_the_pieces_and_the_drift() -> None:
    flow = two_lanes(rounds=20)
    made = flows.made_of(flow)
    slower = flows.resized(flow, made, change("work*=1.5"), PHASES)
    found = flows.predict(flow, [change("work*=1")], Outcomes(made, [slower], made), Doubt(drift=0.04))
    assert found.measured_ns == found.predicted_ns == found.ceiling_ns
    assert found.parts["replay"] == pytest.approx(20 * 350)
    assert found.parts["drift"] == pytest.approx(1.96 * 2**0.5 * 0.04 * found.predicted_ns, rel=1e-3)
    assert found.parts["sampling"] < 0.02 * found.predicted_ns  # the first round has no wait behind it
    each = flows.predict(flow._replace(each=True), [change("work*=1")], Outcomes(made, []), Doubt())
    assert each.predicted_ns == 700  # from the first round's end on


def test_no_number_where_there_is_none() -> None:
    flow, few = two_lanes(), two_lanes(rounds=3)
    with pytest.raises(MissingRecordError, match="at least 8 calls or steps, and there are 3"):
        predicted(few, change("work*=0.5"))
    with pytest.raises(PerfError, match="may be changed of all alike"):
        flows.resized(flow, flows.made_of(flow), Change("work", "=", "peers", "", "A"), PHASES)
    with pytest.raises(PerfError, match="'rank=1' chooses nothing here"):
        predicted(flow, Change("work", "*=", "0.5", "rank=1", "A"))
    made = flows.made_of(flow)
    ring = made._replace(after=[made.after[0], [((0, len(made.after[0]) - 1),), *made.after[1][1:]]])
    with pytest.raises(NotKnownError, match="ends at no time"):
        flows.ends_of(ring)
