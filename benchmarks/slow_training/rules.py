"""What other tools' published rules say of a recorded run: readings of the rules, of which no code is used.

Each reads the columns rank, iteration, phase, own_ns and wait_ns of a run's steps.parquet, as its tool would
measure them, and makes findings as an answer has them; or says why it has no rule for such a run. Where a
reading departs from its rule, it is named below "Departs"; each time in the tool's favour, where there is a
choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as parquet
from numpy.typing import NDArray

NS_PER_MS = 1e6
OPTIMIZER = "optimizer"
Said = list[dict[str, Any]] | dict[str, Any]


class Marks(NamedTuple):
    """A run as its ranks measured it.

    Attributes:
        ranks: their numbers, in the order of the columns of each table.
        steps: iterations, in the order of its rows.
        phases: own time and waiting together, in milliseconds, by phase.
        stages: of the pipeline.
    """

    ranks: list[int]
    steps: list[int]
    phases: dict[str, NDArray[np.float64]]
    stages: int

    def of(self, *names: str) -> NDArray[np.float64]:
        """The sum of these phases and, for "optimizer", of all its parts; zero where none was measured."""
        total = np.zeros((len(self.steps), len(self.ranks)))
        for phase, taken in self.phases.items():
            if phase in names or (OPTIMIZER in names and phase.startswith(OPTIMIZER)):
                total = total + taken
        return total

    def step(self) -> NDArray[np.float64]:
        """Whole steps."""
        return self.of(*self.phases)


def read(run: Path) -> Marks:
    """Of a run's directory."""
    facts = json.loads((run / "run.json").read_text())
    table = parquet.read_table(
        run / "steps.parquet", columns=["rank", "iteration", "phase", "own_ns", "wait_ns"]
    ).to_pandas()
    table["ms"] = (table["own_ns"].fillna(0) + table["wait_ns"].fillna(0)) / NS_PER_MS
    wide = table.pivot_table(
        index="iteration",
        columns=["phase", "rank"],
        values="ms",
        aggfunc="sum",
        fill_value=0.0,
        observed=True,
    )
    ranks = sorted({int(rank) for rank in table["rank"].unique()})
    phases = {
        str(phase): wide[phase].reindex(columns=ranks, fill_value=0.0).to_numpy()
        for phase in wide.columns.get_level_values(0).unique()
    }
    return Marks(ranks, [int(step) for step in wide.index], phases, max(facts["stages"]) + 1)


def traceml(run: Marks) -> Said:
    """TraceML 0.5.0: RankStragglerRule, as diagnostics/DIAGNOSIS.md of its wheel describes it, for DDP.

    Means over the window. The culprit is the rank with the shortest visible phase, as it waited least in it;
    the victim is the upper median rank. Their difference is reported from 10 % of the victim's step on. The
    cause is the culprit's excess in input or forward that covers most of it, and 80 % at least.

    Departs: the visible phase is the backward pass with the gradients' exchange, which DDP waits for inside
    of it and Megatron behind it. The cost is the visible wait; TraceML prints it and calls it no gain. There
    are no transfers to a device, thus no H2D. What it says of all ranks (INPUT_BOUND, RESIDUAL_HEAVY ...)
    names no one and is left out. For pipelines it has no rule.
    """
    silent, covers, fewest = 0.10, 0.80, 2
    if run.stages > 1:
        return abstained("the rule is for data parallelism; it has none for pipelines")
    if len(run.ranks) < 2 or len(run.steps) < fewest:
        return abstained("fewer than two ranks or steps")
    visible, step = run.of("backward", "exposed_grad_comm").mean(axis=0), run.step().mean(axis=0)
    order = sorted(range(len(run.ranks)), key=lambda place: (visible[place], place))
    culprit, victim = order[0], order[len(order) // 2]
    wait_ms = float(visible[victim] - visible[culprit])
    if wait_ms < silent * step[victim]:
        return []
    excess = {phase: run.of(phase).mean(axis=0) for phase in ("data_loading", "forward")}
    phase = max(excess, key=lambda name: float(excess[name][culprit] - excess[name][victim]))
    is_cause = excess[phase][culprit] - excess[phase][victim] >= covers * wait_ms
    return [{"rank": run.ranks[culprit], "phase": phase if is_cause else None, "cost_ms": wait_ms}]


def flagscale(run: Marks) -> Said:
    """FlagScale's straggler detection (pull request 1215, runner/straggler), with its defaults.

    Every 10th step from the 10th on, the sections forward_backward and optimizer are timed with the waiting
    inside of them. Means of the last 100 samples are added up; a rank is a straggler from 1.5 times the
    fastest rank's sum on.

    Departs: it reports every 100 steps; here it does at the end of the run, the slowest rank first. It has no
    phase and no cost.
    """
    slow, first, interval, samples = 1.5, 10, 10, 100
    sampled = [at for at, step in enumerate(run.steps) if step >= first and (step - first) % interval == 0]
    if not sampled:
        return abstained("no step was sampled")
    sections = run.of("data_loading", "forward", "backward", "pipeline_recv_wait", "pipeline_send")
    sections = sections + run.of("exposed_grad_comm", "forward_backward_other", OPTIMIZER)
    taken = sections[sampled[-samples:]].mean(axis=0)
    order = sorted(range(len(run.ranks)), key=lambda place: -taken[place])
    found = [run.ranks[place] for place in order if taken[place] >= slow * taken.min()]
    return [{"rank": rank} for rank in found]


def stagefrontier(run: Marks) -> Said:
    """StageFrontier (arXiv 2606.06751), by its abstract, which is all of it that is public to us.

    Each step is a vector of coarse stages a rank, with the waiting inside. The frontier is the largest sum of
    the stages up to each boundary over all ranks; its increments add up to the step, and who holds it leads
    the stage. Where delay first appears, a stage's increment is more than the stage takes.

    Departs, as the abstract has no thresholds: what a stage takes is the median of the ranks that do not
    lead; a stage is a suspect from 2 % of a step on; and where no rank leads for more than half of that time,
    more evidence is needed, so that nothing is named. Ranks of a pipeline's stages have different orders.
    """
    least, steady = 0.02, 0.5
    if run.stages > 1:
        return abstained("the stages of a step have one order only where there is no pipeline")
    stages = {
        "between_steps": run.of("between_steps", "other"),
        "data_loading": run.of("data_loading"),
        "forward": run.of("forward"),
        "backward": run.of("backward"),
        "exposed_grad_comm": run.of("exposed_grad_comm", "forward_backward_other"),
        OPTIMIZER: run.of(OPTIMIZER, "zero_grad", "exposed_param_comm"),
        "exposed_stat_comm": run.of("exposed_stat_comm"),
    }
    found, ends, before = [], np.zeros((len(run.steps), len(run.ranks))), np.zeros(len(run.steps))
    for stage, taken in stages.items():
        ends = ends + taken
        frontier, leads = ends.max(axis=1), ends.argmax(axis=1)
        usual = [np.median(np.delete(row, place)) for row, place in zip(taken, leads, strict=True)]
        beyond = np.maximum(0.0, frontier - before - usual)
        before = frontier
        led_ms = np.bincount(leads, weights=beyond, minlength=len(run.ranks)) / len(run.steps)
        place = int(led_ms.argmax())
        if led_ms[place] >= least * run.step().mean() and led_ms[place] > steady * led_ms.sum():
            found.append({"rank": run.ranks[place], "phase": stage, "cost_ms": float(led_ms[place])})
    return sorted(found, key=lambda each: -each["cost_ms"])


def abstained(reason: str) -> dict[str, Any]:
    """The answer of a rule that is not for such a run."""
    return {"abstain": True, "reason": reason}


RULES: dict[str, Callable[[Marks], Said]] = {
    "StageFrontier": stagefrontier,
    "TraceML 0.5.0": traceml,
    "FlagScale": flagscale,
}
