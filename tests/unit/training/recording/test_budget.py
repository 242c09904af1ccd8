"""What the monitor may take, and when what had to go for it is tried again."""

from __future__ import annotations

from flagscale_perf.training.recording.budget import Budget, Overrun

MS = 1_000_000
DEAR, LIGHT = [(2 * MS, 100 * MS)] * 3, [(0, 100 * MS)] * 3
COST = "the monitor takes 2000 us a step, 2 % of the time, more than --perf-max-overhead 0.1"


def certain(budget: Budget, steps: list[tuple[int, int]], has_phases: bool = False) -> Overrun | None:
    """The verdict where the steps take as much by both clocks."""
    assert budget.judge(steps, has_phases) is None
    return budget.judge(steps, has_phases) if budget.weighs else None


def test_the_median_step_is_judged_by_the_share_and_with_phases_by_200_us_too() -> None:
    # three steps of 100 ms of which the monitor takes 150 us, 120 us and, as the garbage is collected, 5 ms
    steps = [(120_000, 100_000_000), (5_000_000, 100_000_000), (150_000, 100_000_000)]
    assert certain(Budget(0.001, 3), steps) == Overrun(150_000, 0.0015)
    assert certain(Budget(0.001, 3), steps, has_phases=True) is None
    assert certain(Budget(0.0015, 3), steps) is None


def test_what_only_the_clock_on_the_wall_says_is_no_overrun() -> None:
    budget = Budget(0.001, 3)
    for _ in range(5):
        assert (budget.judge(DEAR, True), budget.weighs) == (None, True)
        assert (budget.judge(LIGHT, True), budget.weighs) == (None, False)


def test_each_part_rests_ten_judgements_and_then_twice_as_long_each_time() -> None:
    budget, rests = Budget(0.001, 3), []
    overrun = certain(budget, DEAR)
    assert overrun is not None
    for steps in (30, 60, 120):
        said = budget.switched_off("phases", overrun)
        limit = f"{COST} (for phases at least 200 us a step) allows"
        assert said == f"phases switched off: {limit}; it is tried again in {steps} steps"
        rested = 0
        while (part := budget.rested()) is None:
            assert budget.judge(LIGHT, False) is None
            rested += 1
        rests.append(rested)
        again = f"switched on again after {steps} steps, to see what the monitor takes now"
        assert budget.switched_on(part) == f"phases {again}"
    assert rests == [10, 20, 40]
    said = budget.switched_off("device memory", overrun)
    assert said == f"device memory switched off: {COST} allows; it is tried again in 30 steps"


def test_a_part_is_tried_again_though_the_rest_is_too_dear() -> None:
    """Without phases the share alone is the limit, which steps of milliseconds never keep."""
    budget = Budget(0.001, 3)
    budget.switched_off("phases", Overrun(2 * MS, 0.02))
    for _ in range(10):
        assert budget.rested() is None
        budget.judge(DEAR, False)
    assert (budget.rested(), budget.weighs, budget.rested()) == ("phases", False, None)
