"""Captured steps handed to the engine, and late rows priced by it, against a simulated 1F1B schedule."""

from __future__ import annotations

import importlib
import random
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import median

import pytest

from flagscale_perf.analysis import replays
from flagscale_perf.analysis.replays import Doubt, Gain, Kind, Part
from flagscale_perf.training.analysis import replayed
from flagscale_perf.training.analysis.asked import Asked
from flagscale_perf.training.analysis.replayed import (
    ReplayFold,
    is_judged,
    layout_of,
    parts_of,
    priced,
    priced_ledger,
)
from flagscale_perf.training.ledger.cuts import BETWEEN
from flagscale_perf.training.ledger.ledger import BY_PATH, MEASURED, OFF_PATH, LateRow, Ledger, ledger_of
from flagscale_perf.training.phases import NUMBER_OF, ONE_F_ONE_B, OTHER, PHASES
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord, CaptureRecord
from tests.fakes import make_facts
from tests.pipelines import WORK, Schedule
from tests.schedules import BACKWARD, MS, recorded


def folded(
    captured: Iterable[CapturedRecord], stages: Sequence[int], hosts: int = 1, last: int = 1000
) -> ReplayFold:
    ranks = list(range(len(stages)))
    facts = make_facts(
        world_size=len(stages),
        pipeline_parallel=max(stages) + 1,
        pipeline_schedule=ONE_F_ONE_B,
        expert_parallel=1,
        tensor_parallel=1,
        arguments={"overlap_grad_reduce": False},
    )
    fold = ReplayFold(facts)
    for host in range(hosts):
        own = ranks[host::hosts]
        fold.node(NodeRecord(f"node{host}", own, own, [""] * len(own), [stages[rank] for rank in own]))
    fold.window(CaptureRecord(7, last, []))
    for each in captured:
        fold.add(each)
    return fold


def stages_of(schedule: Schedule) -> list[int]:
    return [rank // schedule.replicas for rank in range(schedule.stages * schedule.replicas)]


def late_row(pattern: str = "constant") -> tuple[Ledger, LateRow]:
    """Of a rank that is 40 ms late in a stage of two."""
    ledger = ledger_of(
        recorded(2, range(40), lambda rank, _, phase: 40 * MS * ((rank, phase) == (1, BACKWARD)))
    )
    assert ledger is not None
    (row,) = ledger.late
    assert is_judged(row)
    return ledger, replace(row, pattern=pattern)


def even(schedule: Schedule, late: int, phase: str) -> None:
    """The rank takes as long there as the others of its stage."""
    first = late // schedule.replicas * schedule.replicas
    others = [rank for rank in range(first, first + schedule.replicas) if rank != late]
    for rank, name, step, batch in list(schedule.times):
        if (rank, name, step) == (late, phase, 1):
            times = [schedule.times[other, name, step, batch] for other in others]
            schedule.times[rank, name, step, batch] = int(median(times))


@pytest.mark.parametrize("is_nested", [False, True], ids=["plain", "nested"])
@pytest.mark.parametrize("has_room", [True, False], ids=["sent-at-once", "sent-when-received"])
@pytest.mark.parametrize("phase", WORK)
@pytest.mark.parametrize("seed", range(8))
def test_the_gain_is_that_of_the_schedule_without_the_lateness(
    seed: int, phase: str, has_room: bool, is_nested: bool
) -> None:
    """To the nanosecond, whether a rank is on the critical path, beside it, or on it for a part."""
    shape = {"stages": 2 + seed % 3, "replicas": 2 + seed % 2, "batches": 4 + seed % 5, "seed": seed}
    schedule = Schedule(**shape, least_ms=2, has_room=has_room, is_nested=is_nested)
    captured, step_ns = schedule.run()
    found = folded(captured, stages_of(schedule)).replays()
    late = random.Random(seed).randrange(schedule.stages * schedule.replicas)
    even(schedule, late, phase)
    assert found is not None
    (gain,) = found.gains((late,), PHASES.index(phase))
    assert gain.gain_ns == step_ns - schedule.run()[1]


@pytest.mark.parametrize("seed", range(12))
def test_ends_of_collectives_that_are_some_microseconds_apart(seed: int) -> None:
    schedule = Schedule(4, 3, batches=8, seed=seed, least_ms=95, heavy=seed % 5)
    even_ns, late = schedule.run()[1], random.Random(seed).randrange(12)
    for (rank, phase, step, batch), dur_ns in schedule.times.items():
        if (rank, phase) == (late, "backward"):
            schedule.times[rank, phase, step, batch] = dur_ns * 4 // 3
    schedule.jitter_ns = 600_000
    captured, step_ns = schedule.run()
    found = folded(captured, stages_of(schedule)).replays()
    assert found is not None
    (gain,) = found.gains((late,), PHASES.index("backward"))
    assert gain.gain_ns == pytest.approx(step_ns - even_ns, abs=0.02 * step_ns)
    assert gain.gain_ns > 0.05 * step_ns or seed % 5 != late // 3, "in the heavy stage it costs something"


@pytest.mark.parametrize("hosts", [1, 2, 4])
def test_a_ledger_is_priced_and_the_path_is_of_all_steps(hosts: int) -> None:
    """On several machines, too: marks of one clock are on any other's, as messages say."""
    schedule = Schedule(2, 2, batches=6, seed=3, steps=8, least_ms=90)
    for (rank, phase, step, batch), dur_ns in schedule.times.items():
        if (rank, phase) == (1, "backward"):
            schedule.times[rank, phase, step, batch] = dur_ns + 40 * MS
    captured, total_ns = schedule.run()
    apart = [replace(one, start_ns=one.start_ns + one.rank % hosts * 10**12) for one in captured]
    ledger, row = late_row()
    replays = folded(apart, stages_of(schedule), hosts).replays()
    assert replays is not None
    found, path = priced_ledger(ledger, replays), Asked(replays, Doubt()).path
    assert path.steps == 7
    assert path.total_ns == pytest.approx(total_ns, rel=0.001)
    (priced_row,) = found.late
    assert priced_row.label == BY_PATH
    assert priced_row.cost_ns == row.cost_ns, "what its stage waits stays as it is: the rows add up"
    assert priced_row.price_ns / 40 / MS == pytest.approx(6 * 40, rel=0.4)


def test_without_the_engine_s_room_nothing_is_priced(monkeypatch) -> None:
    captured, _ = Schedule(2, 2, batches=6, seed=3, steps=8).run()
    monkeypatch.setattr(replays, "_FILE", "none.py")
    replays.engine.cache_clear()
    assert folded(captured, [0, 0, 1, 1]).replays() is None
    replays.engine.cache_clear()


def test_without_numpy_the_report_says_so_and_prices_nothing(monkeypatch) -> None:
    captured, _ = Schedule(2, 2, batches=6, seed=3, steps=8).run()
    fold = folded(captured, [0, 0, 1, 1])
    monkeypatch.setattr(replayed, "engine", lambda: importlib.import_module("numpy.of_another_time"))
    assert fold.replays() is None
    assert fold.why_not == "No module named 'numpy.of_another_time'"


@pytest.mark.parametrize(
    ("gains_ms", "price_ms", "label"),
    [
        ([10, 12, 14, 12, 11, 13], 12, BY_PATH),
        ([10, 12, 14, 12, 11, 900], 12, BY_PATH),  # a step that was held up otherwise
        ([0] * 6, 0, OFF_PATH),
        ([-2, 3, -3, 2, 0, 0], 0, OFF_PATH),
        ([10, 12, 11, 12, 13], 40, MEASURED),  # too few for an interval
        ([-1, 30, 31, 32, 33, 34], 40, MEASURED),  # nothing, or nearly all of it
    ],
)
def test_a_late_unit_of_a_pipeline_is_priced_by_what_the_job_gains(
    gains_ms: list[float], price_ms: float, label: str
) -> None:
    gains = [Gain(number, round(ms * MS), 40 * MS) for number, ms in enumerate(gains_ms)]
    row = priced(late_row()[1], 40, gains)
    assert (row.price_ns, row.label) == (price_ms * 40 * MS, label)
    assert row.least_ns <= row.price_ns <= row.most_ns


def test_the_steps_in_which_a_unit_is_late_price_what_is_late_in_some() -> None:
    row = replace(late_row("periodic")[1], steps=8, cost_ns=8 * 40 * MS)
    gains = [
        Gain(number, (30 if number % 5 else 1) * MS, (40 if number % 5 else 0) * MS) for number in range(10)
    ]
    found = priced(row, 40, gains)
    assert (found.price_ns, found.label) == (8 * 30 * MS, BY_PATH)
    assert priced(row, 40, gains[:7]) == row, "five late ones are too few"


def test_what_grows_is_priced_by_the_part_of_it_that_is_gained() -> None:
    row = replace(late_row("growing")[1], first_iteration=1, iteration=40, cost_ns=1000 * MS)
    gains = [Gain(number, number * MS, 4 * number * MS) for number in range(10)]
    found = priced(row, 40, gains)
    assert (found.price_ns, found.label) == (250 * MS, BY_PATH)
    assert priced(replace(row, first_iteration=9), 40, gains).label == MEASURED


@pytest.mark.parametrize(("steps", "least", "most"), [(6, 1, 6), (16, 4, 13)])
def test_the_interval_of_a_price_is_that_of_a_sign_test(steps: int, least: int, most: int) -> None:
    """The tables of the sign test: how many of the lowest and of the highest values are left out."""
    row = priced(late_row()[1], 40, [Gain(each, each * MS, 40 * MS) for each in range(steps, 0, -1)])
    assert (row.least_ns, row.most_ns) == (40 * least * MS, 40 * most * MS)


@pytest.mark.parametrize(
    "damage",
    [
        {"marks": [1]},
        {"marks": []},
        {"marks": [126, -5]},
        {"marks": [124, 5]},
        {"train_step_ns": -1},
        {"train_step_ns": 1 << 60},
        {"start_ns": 0},
    ],
)
def test_a_damaged_step_has_no_path(damage: dict) -> None:
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    assert folded([*captured[:-1], replace(captured[-1], **damage)], [0, 1]).replays() is None


@pytest.mark.parametrize(("damaged", "steps"), [(False, 8), (True, 6)])
def test_every_captured_step_is_replayed_but_those_that_contradict_themselves(
    damaged: bool, steps: int
) -> None:
    """Rank 0's clock jumps by an hour in one step: this and the next one are out of joint."""
    captured, _ = Schedule(2, 2, batches=4, seed=1, least_ms=50, steps=9).run()
    hour_ns = 3600 * 10**9
    jumped = [
        replace(step, start_ns=step.start_ns + hour_ns * (damaged and (step.rank, step.iteration) == (0, 9)))
        for step in captured
    ]
    found = folded(jumped, [0, 0, 1, 1]).replays()
    assert found is not None
    assert len(found.gains((1,), PHASES.index("forward"))) == steps


def test_a_window_without_a_path_leaves_the_one_before_it_and_says_why() -> None:
    captured, _ = Schedule(2, 1, batches=4, seed=1).run()
    fold = folded(captured, [0, 1])
    replays = fold.replays()
    fold.window(CaptureRecord(90, 99, []))
    fold.add(replace(captured[0], iteration=90))
    again = fold.replays()
    assert replays is not None and again is not None and again.paths() == replays.paths()
    fold.add(replace(captured[0], iteration=91, start_ns=captured[0].start_ns + 10**12))
    assert fold.replays() is not None
    assert fold.why_not == "no step has the marks of every rank"


@pytest.mark.parametrize("until", [8, 11, 12])
@pytest.mark.parametrize("room", [1.0, 0.4])
def test_of_a_large_job_the_last_steps_of_a_window_are_left_out(monkeypatch, until: int, room: float) -> None:
    """As many whole steps stay as there is room for; one in any case, with the end of the one before it."""
    captured, _ = Schedule(2, 2, batches=4, seed=1, least_ms=50, steps=9).run()
    whole = sum(len(one.marks) // 2 for one in captured if 7 < one.iteration <= until)
    monkeypatch.setattr(replayed, "MAX_PARTS", whole if room == 1 else round(whole * room))
    kept = until if room == 1 else max(8, 7 + int((until - 7) * room))
    for given in (captured, [one for one in captured for _ in range(3)]):  # also where each is there again
        found = folded(given, [0, 0, 1, 1]).replays()
        assert found is not None
        gains = found.gains((1,), PHASES.index("forward"))
        assert [gain.iteration for gain in gains] == [*range(8, kept + 1)]


LARGE = """
import resource
from dataclasses import replace
from tests.pipelines import Schedule
from tests.unit.training.analysis.test_replayed import folded
stages, replicas = 16, 640
captured, _ = Schedule(stages, 1, batches=128, seed=1, least_ms=50, steps=6).run()
every = (replace(one, rank=one.rank * replicas + at) for one in captured for at in range(replicas))
found = folded(every, [stage for stage in range(stages) for _ in range(replicas)], last=12).replays()
print(len(found.gains([replicas], 1)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1000)
"""


@pytest.mark.long
def test_ten_thousand_ranks_keep_what_a_gigabyte_holds() -> None:
    said = subprocess.check_output([sys.executable, "-c", LARGE], text=True)
    steps, megabytes = map(int, said.split())
    assert steps == 2, "of 1,031 parts of each rank"
    assert megabytes < 1000


def test_tensor_parallel_ranks_are_no_more_than_there_are() -> None:
    assert layout_of(make_facts(tensor_parallel=10**30), {0: 0, 1: 1}, {}).tensor_parallel == 2


def test_the_parts_between_marks() -> None:
    def marks(*timers: str) -> str:
        return " ".join(str(2 * NUMBER_OF[name.strip("/")] + name.startswith("/")) for name in timers)

    other, forward, loading = OTHER, PHASES.index("forward"), PHASES.index("data_loading")
    found = parts_of(
        marks("forward-compute", "batch-generator", "/batch-generator", "/forward-compute", "forward-send",
              "/forward-send", "all-grads-sync", "/all-grads-sync")
    )  # fmt: skip
    assert found == (
        Part(Kind.WORK, BETWEEN),
        Part(Kind.BEFORE, other),
        Part(Kind.WORK, forward),
        Part(Kind.WORK, loading),
        Part(Kind.FORWARD, forward),
        Part(Kind.WORK, other),
        Part(Kind.MESSAGE, PHASES.index("pipeline_send"), "forward-send"),
        Part(Kind.WORK, other),
        Part(Kind.MEETING, PHASES.index("exposed_grad_comm"), "all-grads-sync"),
        Part(Kind.WORK, other),
    )
