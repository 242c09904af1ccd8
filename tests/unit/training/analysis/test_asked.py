"""What captured steps are asked, against a simulated schedule."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.replays import Doubt
from flagscale_perf.training.analysis.asked import Asked, doubt_of
from flagscale_perf.training.analysis.basis import REHEARSAL_NOISE
from flagscale_perf.training.analysis.fold import folded as folded_run
from tests.captured_runs import evenly, make_late, write_run
from tests.pipelines import Schedule
from tests.unit.training.analysis.test_replayed import folded, stages_of

MS = 1_000_000


@pytest.fixture()
def asked(tmp_path: Path) -> Asked:
    """Steps of 355 ms: four passes of 20 and 40 ms on two stages; one rank's forward 15 ms longer."""
    replays = folded_run(open_session(write_run(tmp_path / "perf", make_late(evenly(), 1, 15)))).replays()
    assert replays is not None
    return Asked(replays, Doubt())


def test_a_phase_has_the_share_that_a_mean_rank_spends_in_it(asked: Asked) -> None:
    assert asked.steps == "8 captured steps"
    assert asked.share("forward") == pytest.approx(4 * (20 + 15 / 4) / 355, rel=0.01)
    assert asked.share("forward", "backward") == pytest.approx(4 * (60 + 15 / 4) / 355, rel=0.01)


def test_by_how_much_ranks_take_longer_than_their_peers(asked: Asked) -> None:
    assert asked.longer_ns([1], "forward") == 4 * 15 * MS
    assert asked.longer_ns([1], "backward") == 0
    assert asked.longer_ns([0, 1], "forward") == 0, "there is nobody to compare them with"


def test_what_is_impossible_or_takes_other_records_has_no_prediction(asked: Asked) -> None:
    assert asked.predict("pp=3") is None
    assert asked.predict("tp=8") is None
    found = asked.predict("rank=1 forward=peers")
    assert found is not None and found.is_gain
    assert asked.predict("rank=1 forward=peers") is found, "it is made once"


def test_a_rehearsal_differs_more_from_run_to_run(tmp_path: Path) -> None:
    session = open_session(write_run(tmp_path / "one" / "perf", evenly(), rehearsal=True))
    assert doubt_of(session).drift == REHEARSAL_NOISE


def test_what_stages_gain_whose_passes_are_as_long_as_the_others() -> None:
    """Against the same schedule with these times."""
    schedule = Schedule(4, 1, batches=8, seed=2, least_ms=80, heavy=1, steps=8, is_nested=True)
    captured, whole_ns = schedule.run()
    fold = folded(captured, stages_of(schedule))
    replays = fold.replays()
    assert replays is not None
    times, gains = dict(schedule.times), []
    for changed, like in ((range(4), range(4)), ([1], [0, 2, 3])):
        schedule.times = dict(times)
        for rank, phase, step, batch in times:
            if rank in changed and phase in ("forward", "backward") and step:
                of_like = [times[other, phase, step, batch] for other in like]
                schedule.times[rank, phase, step, batch] = sum(of_like) // len(like)
        gains.append(1 - schedule.run()[1] / whole_ns)
    found = Asked(replays, Doubt()).stage_gains
    assert found is not None and found.stage == 1
    assert found.even_within[0] <= found.even <= found.even_within[1]
    assert [found.even, found.alone] == pytest.approx(gains, rel=0.05)
    assert found.even > 0.1
