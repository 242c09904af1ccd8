"""Runs that become slower within themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import read_report
from tests.fakes import MS
from tests.noisy import plan
from tests.synthetic import PHASES, Plan, write
from tests.unit.training.analysis.findings.planted import findings_of


def longer(share: float) -> dict[str, int]:
    return {name: int((dur_ns or 0) * share) for name, dur_ns in PHASES.items()}


@pytest.mark.parametrize(
    ("extra", "begin", "end", "phase", "gain"),
    [
        (lambda n: longer(0.2) if n >= 300 else {}, 300, 600, None, 0.1),
        (lambda n: longer(0.02) if n >= 300 else {}, 300, 600, None, 0.01),
        (lambda n: longer(0.04) if n >= 360 else {}, 360, 600, None, 0.016),
        (lambda n: {"backward_ns": 40 * MS} if n >= 300 else {}, 300, 600, "backward", 0.02),
        (lambda n: longer(0.1) if 200 <= n < 400 else {}, 200, 399, None, 0.033),
        (lambda n: longer(0.1 * ((n >= 200) + (n >= 400))), 200, 600, None, 0.1),
    ],
)
def test_levels_are_found_where_they_begin_with_their_cost(
    extra: Callable[[int], dict[str, int]],
    begin: int,
    end: int,
    phase: str | None,
    gain: float,
    tmp_path: Path,
) -> None:
    (found,) = findings_of(Plan(extra=extra), tmp_path)
    assert (found.name, found.phase, found.pattern) == ("slowdown", phase, "lasting")
    assert found.first_iteration == pytest.approx(begin, abs=2)
    assert found.iteration == pytest.approx(end, abs=2)
    assert found.gain == pytest.approx(gain, rel=0.1)


def test_a_ramp_of_the_whole_step_is_gradual(tmp_path: Path) -> None:
    (found,) = findings_of(Plan(extra=lambda n: longer(0.18 * n / 600)), tmp_path)
    assert (found.name, found.pattern) == ("slowdown", "growing")
    assert "longer and longer" in found.title and "in all phases alike" in found.title


def test_two_phases_are_named_with_their_parts(tmp_path: Path) -> None:
    extra = {"forward_ns": 50 * MS, "backward_ns": 100 * MS}
    (found,) = findings_of(Plan(extra=lambda n: extra if n >= 300 else {}), tmp_path)
    assert "by 15 %, from 1002.0 to 1152.0 ms a step (backward 67 %, forward 33 % of it)" in found.title


def test_what_the_host_takes_is_said_of_the_host(tmp_path: Path) -> None:
    plan = Plan(
        extra=lambda n: longer(0.1) if n >= 300 else {},
        host=lambda n: {"cores": 2, "run_delay_ns": max(0, n - 299) * 100 * MS},
    )
    found = next(one for one in findings_of(plan, tmp_path) if one.name == "slowdown")
    assert found.title.endswith("while the host is short of CPU")
    assert found.causes[0].startswith("the host waits for CPU ")


def test_where_no_iteration_finished_there_is_nothing_to_judge(tmp_path: Path) -> None:
    plan = Plan(steps=0, facts={"resume_iteration": 60, "train_iters": 60})
    shown = report_of(read_report(open_session(write(plan, tmp_path)))).findings
    assert shown is not None
    assert shown.none_found == "nothing to judge: no iteration finished (the checkpoint is at 60 of 60)"


def test_what_was_slow_at_first_is_not_passed_over(tmp_path: Path) -> None:
    report = read_report(open_session(write(Plan(extra=lambda n: longer(0.1) if n < 240 else {}), tmp_path)))
    assert report.findings == []
    (told,) = [line for line in report.unjudged if line.startswith("the steps' course")]
    course, _, why = told.partition(" ms (-9.1 %) after iteration ")
    assert course == "the steps' course: a step went from 1102.0 to 1002.0"
    assert why.endswith(": slower at first, and no cause can be named")


def test_a_change_that_comes_and_goes_is_no_finding_but_told(tmp_path: Path) -> None:
    plan = Plan(extra=lambda n: longer(0.5) if n >= 300 and n * n % 7 in (1, 2, 4) else {})
    report = read_report(open_session(write(plan, tmp_path)))
    assert "slowdown" not in {finding.name for finding in report.findings}
    (told,) = [line for line in report.unjudged if line.startswith("the steps' course")]
    assert told.endswith("in bursts, not in every step")


@pytest.mark.parametrize("is_ramp", [False, True])
@pytest.mark.parametrize("size", [0.0, 0.02, 0.04])
def test_what_is_not_found_is_less_than_what_is_said_to_look_like_chance(
    size: float, is_ramp: bool, tmp_path: Path
) -> None:
    hidden = 0
    for seed in range(12):
        run = plan(("quiet", "tails")[seed % 2], seed)
        report = read_report(open_session(write(planted(run, size, is_ramp), tmp_path)))
        told = [line for line in report.unjudged if line.startswith("the steps' course: ")]
        if any(one.name == "slowdown" for one in report.findings):
            assert size and not told
            continue
        _, is_hidden, said = (told or [""])[0].partition("a slowdown of less than ")
        if is_hidden:
            least, _, where = said.partition(" % ")
            assert where == "halfway, or little by little: it would look like chance"
            assert size < float(least) / 100
            hidden += 1
        assert told or not size
    assert hidden


def planted(run: Plan, size: float, is_ramp: bool) -> Plan:
    """The run, longer by `size` from its middle on, or to its end."""

    def extra(number: int) -> dict[str, int]:
        at = number / run.steps
        more = longer(size * (at if is_ramp else float(at > 0.5)))
        return {name: dur_ns + more[name] for name, dur_ns in run.extra(number).items()}

    return replace(run, extra=extra)


def test_a_quiet_run_hides_nothing_and_few_steps_hide_what_comes_little_by_little(tmp_path: Path) -> None:
    for steps, said in ((600, []), (32, ["or of any size little by little: it would look like chance"])):
        unjudged = read_report(open_session(write(Plan(steps=steps), tmp_path))).unjudged
        told = [line for line in unjudged if line.startswith("the steps' course")]
        assert [line.partition("halfway, ")[2] for line in told] == said
