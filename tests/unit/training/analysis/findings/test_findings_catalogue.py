"""Every phase, every pattern, planted into the noise of real runs: phase and pattern are named, the gain is
right to 20 %, and nothing is named besides what the recorded run has without a plant.
"""

from __future__ import annotations

import pytest

from tests.recorded import PATTERNS, RUNS, finding_of, noise, plant, usual_step_ns

# Of a usual step, above what docs/reading.md says can be found; in phases that are long themselves more.
SIZES = {"constant": 1.0, "periodic": 1.5, "bursts": 2.0, "growing": 1.5}
LARGER = {("forward", "bursts"): 5.0, ("forward", "constant"): 2.0, ("backward", "constant"): 3.0}
BY_FLOPS = ("forward", "backward")  # a constant plant has no gain that one run alone could tell
TOLERANCE = 0.2
WIDER = {
    (
        "two_ranks",
        "exposed_grad_comm",
        "constant",
    ): 0.5,  # an eighth of the steps without a plant
    ("two_ranks", "forward", "growing"): 0.25,  # without a plant it becomes shorter in this recording
}
# What the recordings themselves have: neighbours that leave after a third of the run, like a slow start;
# ranks that wait for one another on two busy cores.
RECORDED = {"one_rank": {"slow_start"}, "two_ranks": {"exposed_comm"}}


@pytest.mark.parametrize("run", RUNS)
def test_a_recorded_run_has_nothing_but_what_it_has(run: str) -> None:
    assert {each.name for each in plant(run, "other", "constant", 0).named} <= RECORDED[run]


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("run", RUNS)
def test_every_phase_of_the_catalogue(run: str, pattern: str) -> None:
    wrong = {}
    for name in noise(run)[0]:
        phase = name.removesuffix("_ns")
        size_ns = LARGER.get((phase, pattern), SIZES[pattern]) * usual_step_ns(run)
        planted = plant(run, phase, pattern, size_ns)
        found = finding_of(planted, phase, pattern)
        others = {each.name for each in planted.named if each is not found} - RECORDED[run]
        is_known = pattern != "constant" or phase not in BY_FLOPS
        ratio = None if found is None or found.gain is None else found.gain / planted.true_gain
        tolerance = WIDER.get((run, phase, pattern), TOLERANCE)
        if others or ratio is None or (is_known and abs(ratio - 1) > tolerance):
            wrong[phase] = (others, ratio)
    assert wrong == {}
