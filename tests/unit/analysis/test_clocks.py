"""The clocks of several machines: simulated pairs whose truth is known, and what is said of them."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from flagscale_perf.analysis.clocks import MAX_DRIFT_PPM, Bound, Clocks, none_left_before
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.records import RunHeader
from tests.fakes import make_header

AHEAD_NS, DRIFT = 3 * NS_PER_S, 50e-6
HOUR_NS = 3600 * NS_PER_S
BEGIN_NS = 1000 * NS_PER_S
LINE = re.compile(
    r"clock of node1: ([+-][\d,.]+) s \+- ([\d.]+) (s|ms|us|ns) at (\S+), "
    r"drift (?:not known|([+-][\d.]+) \+- ([\d.]+) ppm)"
)
UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
Clock = Callable[[float], int]


def header(host: str, **fields: int | str) -> RunHeader:
    return replace(make_header(), host=host, boot_id=f"boot of {host}", **fields)  # type: ignore[arg-type]


def machines() -> list[RunHeader]:
    """The second one's wall clock is an hour wrong."""
    first = header("node0", start_mono_ns=BEGIN_NS)
    wall_ns = first.start_wall_ns + HOUR_NS
    return [first, header("node1", start_mono_ns=BEGIN_NS + AHEAD_NS, start_wall_ns=wall_ns)]


def ahead(at_ns: float) -> int:
    """The second machine's clock by that of the first."""
    return round(at_ns + AHEAD_NS + DRIFT * (at_ns - BEGIN_NS))


def messages(seed: int, clock: Clock = ahead) -> tuple[list[Bound], float]:
    """Both ways, few or many, over a short or long time, slow or fast, and slower in one direction; with the
    seconds that they take.
    """
    chance = random.Random(seed)
    count, span_s = chance.choice([6, 50, 1000]), chance.choice([0.5, 10, 600, 7200])
    fastest_ns, asymmetry = chance.choice([20e3, 1e6]), chance.choice([1, 1, 20])
    made = []
    for number in range(count):
        sent_ns = BEGIN_NS + chance.uniform(0, span_s) * NS_PER_S
        took_ns = fastest_ns * (1 + chance.expovariate(1))
        if number % 2:
            made.append(Bound("boot of node0", round(sent_ns), "boot of node1", clock(sent_ns + took_ns)))
        else:
            came_ns = round(sent_ns + took_ns * asymmetry)
            made.append(Bound("boot of node1", clock(sent_ns), "boot of node0", came_ns))
    return made, span_s


def is_true(clocks: Clocks, span_s: float, clock: Clock = ahead) -> bool:
    """Whether the truth is within the interval at every time, and so is what is printed."""
    move = clocks.mover("boot of node1")
    assert move is not None
    for part in range(11):
        truth_ns = BEGIN_NS + span_s * part / 10 * NS_PER_S
        mark_ns = clock(truth_ns)
        assert abs(clocks.mark_of("boot of node1", move(mark_ns)) - mark_ns) <= NS_PER_MS
        uncertainty_ns = clocks.uncertainty_ns("node1", mark_ns)
        assert uncertainty_ns is not None
        if abs(move(mark_ns) - truth_ns) > uncertainty_ns + 1:
            return False
    (line,) = clocks.lines()
    found = LINE.match(line)
    assert found, line
    drift_ppm, within_ppm = float(found[5] or 0), float(found[6] or MAX_DRIFT_PPM)
    return clock is not ahead or abs(drift_ppm - DRIFT * 1e6) <= within_ppm + 0.06  # as rounded


@pytest.mark.parametrize("group", range(4))
def test_the_truth_is_within_the_interval(group: int) -> None:
    right = 0
    for seed in range(50 * group, 50 * group + 50):
        bounds, span_s = messages(seed)
        right += is_true(Clocks(machines(), lambda found=bounds: found), span_s)  # type: ignore[misc]
    assert right == 50  # none of the 200 is outside


def test_the_interval_is_as_narrow_as_the_fastest_messages() -> None:
    bounds = []
    for each in range(2000):
        sent_ns = BEGIN_NS + each * 5_000_000
        took_ns = 40_000 if each % 10 < 2 else 900_000
        if each % 2:
            bounds.append(Bound("boot of node0", sent_ns, "boot of node1", ahead(sent_ns + took_ns)))
        else:
            bounds.append(Bound("boot of node1", ahead(sent_ns), "boot of node0", sent_ns + took_ns))
    (line,) = Clocks(machines(), lambda: bounds).lines()
    found = LINE.match(line)
    assert found, line
    assert float(found[1]) == pytest.approx(3.0, abs=float(found[2]) * UNITS_S[found[3]])
    assert float(found[2]) * UNITS_S[found[3]] <= 50e-6
    assert float(found[6]) <= 10
    assert line.endswith("(2,000 messages both ways)")


@pytest.mark.parametrize("seed", range(40))
def test_a_rate_that_changes_is_not_taken_for_a_constant_one(seed: int) -> None:
    """As NTP corrects a clock: 20 ppm less in the second half."""
    bounds, span_s = messages(seed, slewed := _slewed(seed))
    assert is_true(Clocks(machines(), lambda: bounds), span_s, slewed)


def _slewed(seed: int) -> Clock:
    middle_ns = BEGIN_NS + messages(seed)[1] / 2 * NS_PER_S
    return lambda at_ns: round(ahead(at_ns) - 20e-6 * max(0, at_ns - middle_ns))


def test_marks_of_one_machine_keep_their_distances_where_nothing_says_otherwise() -> None:
    bounds, _ = messages(3, lambda at_ns: round(at_ns) + AHEAD_NS)
    move = Clocks(machines(), lambda: bounds).mover("boot of node1")
    assert move is not None
    assert {move(at_ns) - at_ns for at_ns in range(0, HOUR_NS, HOUR_NS // 100)} == {move(0)}


def test_machines_are_related_over_others() -> None:
    third = header("node2", start_mono_ns=BEGIN_NS - AHEAD_NS)
    bounds, _ = messages(4)
    names = {"boot of node0": "boot of node1", "boot of node1": "boot of node2"}
    further = [each._replace(clock=names[each.clock], other=names[each.other]) for each in bounds]
    clocks = Clocks([*machines(), third], lambda: [*bounds, *further])
    move = clocks.mover("boot of node2")
    assert move is not None
    for truth_ns in range(BEGIN_NS, BEGIN_NS + NS_PER_S, NS_PER_S // 10):
        mark_ns = ahead(ahead(truth_ns))
        assert abs(move(mark_ns) - truth_ns) <= (clocks.uncertainty_ns("node2", mark_ns) or 0)
    one, other = clocks.lines()
    assert LINE.match(one)
    assert other.startswith("clock of node2: +") and other.endswith(
        "messages both ways, over other machines)"
    )


@pytest.mark.parametrize(
    ("kept", "why"),
    [
        (lambda bounds: [], "no message between it and node0"),
        (
            lambda bounds: [each for each in bounds if each.clock.endswith("0")],
            "500 messages one way, none back",
        ),
        (
            lambda bounds: [*bounds, bounds[0]._replace(at_ns=bounds[0].at_ns + NS_PER_S)],
            "1,001 messages contradict one another",
        ),
    ],
)
def test_without_evidence_it_is_the_wall_clock(
    kept: Callable[[list[Bound]], Iterable[Bound]], why: str
) -> None:
    bounds = next(found for seed in range(99) if len(found := messages(seed)[0]) == 1000)
    clocks = Clocks(machines(), lambda: kept(bounds))
    assert clocks.lines() == [f"clock of node1: -3,597.000 s +- unknown, wall clock ({why})"]
    assert clocks.uncertainty_ns("boot of node1", BEGIN_NS) is None
    move = clocks.mover("boot of node1")
    assert move is not None
    assert move(BEGIN_NS + AHEAD_NS) == BEGIN_NS + HOUR_NS


def test_one_clock_needs_no_evidence_though_the_time_of_day_was_set() -> None:
    first = header("node0")
    again = replace(first, host="container", start_wall_ns=first.start_wall_ns + HOUR_NS)
    clocks = Clocks([first, again])
    assert clocks.mover("boot of node0") is None
    assert clocks.uncertainty_ns("boot of node0", 0) == 0
    assert clocks.lines() == []


def test_nobody_leaves_before_all_have_come() -> None:
    sides = [("a", 0, 90), ("b", 1050, 1100), ("a", 60, 95)]
    assert [*none_left_before(sides)] == [Bound("a", 60, "b", 1100), Bound("b", 1050, "a", 90)]
