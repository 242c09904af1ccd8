"""Who holds a step up and what it costs, said by the ledger, beside what was planted in real FlagScale runs.

python benchmarks/bench_ledger.py [--seed N] [--runs N] [--controls N] [--busy N] [--pipelines N] [--keep DIR]

Each run trains a small model on 2 or 4 CPU ranks. A delay of a kind, a size and a rank that the seed draws is
on in every step of the first half; in the second half it is switched on and off every five steps, and what a
step takes longer with it than without is its true cost, by the host's own steps. The report is made of the
first half. A small delay has a longer second half, and a true cost that is known no better than what is to be
told apart is left out of the judgement of costs. Beside it stands what readings of TraceML's and FlagScale's
rules say of the same marks (docs/metrics.md). In a pipeline, some steps are captured, too, and one stage may
be heavier than the others, so that a delay of another costs nothing. Not a test: it asserts nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import PHASE_BASE
from tests.processes import flagscale as fs
from tests.processes import padded_stages
from tests.processes.slowed_parts import WINDOW_STEPS

SLOWED_PARTS = Path(padded_stages.__file__).with_name("slowed_parts.py")
KINDS = ("data_loading", "forward", "backward", "optimizer_inner_step", "exposed_grad_comm")
SIZES_MS = (10, 40, 120)
ALWAYS, SWITCHED = 60, 60  # steps with the delay in all of them, then in five of ten
SMALL_MS, SWITCHED_SMALL = 20, 240  # the same of a small delay: of 60 steps its cost is not known to 2 ms
PADS = {"PADDED_FORWARD_S": "0.015", "PADDED_BACKWARD_S": "0.030"}
PIPELINE_PADS = {
    "PADDED_FORWARD_S": "0.040",
    "PADDED_BACKWARD_S": "0.080",
}  # so long that computing beside the sleeps matters little: 4 ranks share 2 cores
HEAVIER_S, MICROBATCHES, LAYERS = 0.04, 4, 4
MONITOR = ("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf")
NEAR, NEAR_OF_STEP = 0.2, 0.02  # of the true cost, or of a step: what is said so well is right
TRACEML_SILENT, TRACEML_COVERS = 0.10, 0.8  # of a step; of the wait (PR 165, 253)
FLAGSCALE_SLOW = 1.5  # times the fastest rank (PR 1215)
# What a report says of a healthy run on these cores: they are short, and steps uneven.
BESIDE = {"jitter", "slow_start", "host_short_of_cpu", "startup"}


PRICED, KNOWN = "cost to 20 % or 2 % of a step", "(of so many whose cost is known so well)"
NAMED = "among the first two, or below 2 % of a step"
# Where nothing at all is said, the price is 0.
QUESTIONS = ("rank and phase first", "among the first two", NAMED, "rank first", PRICED, KNOWN)


class Plant(NamedTuple):
    """A delay of one rank in every step, in a phase. In a pipeline, `heavy` is a stage whose ranks take
    longer than the others in each forward pass.
    """

    phase: str
    size_ms: int
    rank: int
    ranks: int
    stages: int = 1
    heavy: int | None = None

    def slowed(self) -> str:
        """As `slowed_parts.py` reads it."""
        delay = f"{self.phase}:{self.size_ms / 1e3}:windows {ALWAYS}:{self.rank}"
        per_stage = self.ranks // self.stages
        ranks = [] if self.heavy is None else range(per_stage * self.heavy, per_stage * (self.heavy + 1))
        heavier = [f"forward:{HEAVIER_S}:calls:{rank}" for rank in ranks]
        return ",".join([delay, *heavier] if self.size_ms else heavier)


class Said(NamedTuple):
    """What a rule says first: whose fault, where, and what it costs a step; None where it does not say."""

    rank: int | None
    phase: str | None
    cost_ms: float | None


NOTHING = Said(None, None, None)


@dataclass(frozen=True)
class Outcome:
    """Of one run.

    Attributes:
        step_ms: a mean step with the delay.
        true_ms, spread_ms: what it costs a step, and the standard error of that.
        findings: those about steps, the costliest first.
        traceml, flagscale: what their rules say.
        residual: of the ledger, as a share of the step.
        load: of the machine, at the end of the run.
        path: what is on the critical path, by rank, of all that it does.
    """

    step_ms: float
    true_ms: float
    spread_ms: float
    findings: list[Finding]
    traceml: Said
    flagscale: Said
    residual: float
    path: dict[int, float]
    load: str = ""


def main() -> None:
    """Runs, and prints a row for each, then how often each is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1, help="of ranks and order (default: 1)")
    parser.add_argument("--runs", type=int, default=30, help="with a delay (default: 30)")
    parser.add_argument("--controls", type=int, default=10, help="without one (default: 10)")
    parser.add_argument(
        "--busy", type=int, default=0, help="more without one, beside a process that never rests (default: 0)"
    )
    parser.add_argument("--pipelines", type=int, default=0, help="with a delay in one (default: 0)")
    parser.add_argument(
        "--keep", type=Path, help="keep the runs there; those that are there already are judged anew"
    )
    options = parser.parse_args()
    print(head("training"))
    keep = options.keep
    if options.pipelines:
        pipelines(options.seed, options.pipelines, keep)
    if options.runs:
        delays(options.seed, options.runs, keep)
    if options.controls:
        controls(options.controls, "healthy", keep)
    if options.busy:
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as neighbour:
            try:
                controls(options.busy, "healthy, beside a busy process", keep)
            finally:
                neighbour.kill()


def delays(seed: int, count: int, keep: Path | None) -> None:
    """A row for each: the delay, its true cost, and what is said first; then how often that is right."""
    print(f"{'planted':44} {'true':>18} {'of':>7}  {'ledger':34} {'TraceML':29} {'FlagScale':10} load")
    right: Counter[str] = Counter()
    for number, plant in enumerate(drawn(seed, count)):
        outcome = run(plant, keep and keep / f"delay_{seed}_{number}")
        judge(plant, outcome, right)
        planted = f"{plant.size_ms} ms in {plant.phase}, rank {plant.rank} of {plant.ranks}"
        true = f"{outcome.true_ms:.1f} +- {outcome.spread_ms:.1f} ms"
        ours = _finding_text(outcome.findings[0], outcome.step_ms) if outcome.findings else "-"
        print(
            f"{planted:44} {true:>18} {outcome.step_ms:4.0f} ms  {ours:34} {_said(outcome.traceml):29} "
            f"{_said(outcome.flagscale):10} {outcome.load}",
            flush=True,
        )
    print(f"\n{f'of {count} delays':39} {'ledger':>8} {'TraceML':>8} {'FlagScale':>10}")
    for what in QUESTIONS:
        cells = [right[f"{who}: {what}"] for who in ("ledger", "TraceML", "FlagScale")]
        print(f"{what:43} {cells[0]:4} {cells[1]:8} {cells[2]:10}")
    print(flush=True)


def controls(count: int, what: str, keep: Path | None) -> None:
    """A row for each healthy run, of 2 and of 4 ranks in turns: what is said all the same."""
    false: Counter[str] = Counter()
    for number in range(count):
        ranks = (2, 4)[number % 2]
        outcome = run(Plant("", 0, 0, ranks), keep and keep / f"{what}_{number}".replace(" ", "_"))
        false["ledger"] += bool(outcome.findings)
        false["TraceML"] += outcome.traceml != NOTHING
        false["FlagScale"] += outcome.flagscale != NOTHING
        names = ", ".join(each.title for each in outcome.findings) or "nothing"
        print(f"{what}, {ranks} ranks: {names}; residual {100 * outcome.residual:.2f} %", flush=True)
    cells = [false[who] for who in ("ledger", "TraceML", "FlagScale")]
    print(f"{f'findings in {count} such runs':43} {cells[0]:4} {cells[1]:8} {cells[2]:10}\n", flush=True)


def pipelines(seed: int, count: int, keep: Path | None) -> None:
    """A row for each: the delay, whether a stage is heavier, its true cost, what is said, and how much of the
    work of each rank is on the critical path. Then how often the price is right, where nothing said is none.
    """
    draw = random.Random(seed)
    right: Counter[bool] = Counter()
    print(f"{'planted':52} {'true':>18}  {'of the rank, or of a stage':68} on the path, by rank")
    for number in range(count):
        stages, phase = (2, 2, 4)[number % 3], ("forward", "backward")[number // 3 % 2]
        rank = draw.randrange(4)
        stage = rank * stages // 4
        heavy = draw.choice([each for each in range(stages) if each != stage]) if number % 2 else None
        plant = Plant(phase, 120 if stages == 4 else 40, rank, 4, stages, heavy)
        outcome = run(plant, keep and keep / f"pipeline_{seed}_{number}")
        planted = f"{plant.size_ms} ms in {phase}, rank {rank}, PP{stages} DP{4 // stages}"
        planted += "" if heavy is None else f", stage {heavy} heavy"
        true = f"{outcome.true_ms:.1f} +- {outcome.spread_ms:.1f} ms"
        named = [each for each in outcome.findings if each.name in ("straggler", "slow_stage")]
        named.sort(key=lambda each: each.ranks != [rank])
        said = ", then ".join(f"{each.name} {_finding_text(each, outcome.step_ms)}" for each in named[:2])
        path = ", ".join(f"{each}: {100 * part:.0f} %" for each, part in sorted(outcome.path.items()))
        print(f"{planted:52} {true:>18}  {said or 'nothing':68} {path}", flush=True)
        limit_ms = _limit_ms(outcome)
        if stages < 4 and 2 * outcome.spread_ms <= limit_ms:  # a rank of four stages has no peers
            prices = [_as_said(each, outcome.step_ms).cost_ms for each in named if each.ranks == [rank]]
            right[abs((prices[0] or 0.0 if prices else 0.0) - outcome.true_ms) <= limit_ms] += 1
    print(f"\nprices of ranks with peers, to 20 % or 2 % of a step: {right[True]} of {right.total()}\n")


def drawn(seed: int, count: int) -> list[Plant]:
    """Every kind and size for 2 and for 4 ranks before any comes again, the ranks by the seed."""
    draw = random.Random(seed)
    every = [(ranks, kind, size) for ranks in (2, 4) for kind in KINDS for size in SIZES_MS]
    draw.shuffle(every)
    chosen = [every[number % len(every)] for number in range(count)]
    return [Plant(kind, size, draw.randrange(ranks), ranks) for ranks, kind, size in chosen]


def run(plant: Plant, kept: Path | None) -> Outcome:
    """Trains once, or judges what an earlier command has kept of this run."""
    with contextlib.ExitStack() as stack:
        directory = kept or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / "load").exists():
            train(plant, directory)
            (directory / "load").write_text(f"{os.getloadavg()[0]:.1f}")
        (path,) = (directory / "perf").glob("perf_records_*.jsonl")
        return replace(outcome_of(path), load=(directory / "load").read_text())


def train(plant: Plant, directory: Path) -> None:
    """In that directory."""
    slowed = [SLOWED_PARTS, plants] if (plants := plant.slowed()) else []
    script = [*slowed, padded_stages.__file__, fs.train_gpt(), *fs.SMALL, "--vocab-size", 4200]
    switched = SWITCHED_SMALL if 0 < plant.size_ms < SMALL_MS else SWITCHED
    more = ["--global-batch-size", 4 * plant.ranks // 2, "--train-iters", ALWAYS + switched]
    pads = PADS
    if plant.stages > 1:
        batch = 2 * MICROBATCHES * plant.ranks // plant.stages
        more += ["--pipeline-model-parallel-size", plant.stages, "--num-layers", LAYERS]
        more += ["--global-batch-size", batch, "--perf-capture-steps", 20]
        pads = PIPELINE_PADS
    words = fs.launched(*map(str, [*script, *more, *MONITOR]))
    finished = fs.run(fs.workers(plant.ranks, *words), directory, **pads)
    if finished.returncode:
        sys.exit(f"the training failed:\n{finished.output[-3000:]}")


def outcome_of(path: Path) -> Outcome:
    """What the run file shows."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    switched = [row for row in rows if row["kind"] == "step" and row["iteration"] > ALWAYS]
    by_window: dict[int, list[float]] = defaultdict(list)
    for row in switched:
        by_window[(row["iteration"] - ALWAYS - 1) // WINDOW_STEPS].append(row["iteration_ns"] / NS_PER_MS)
    true_ms, spread_ms = cost_of([statistics.median(times) for _, times in sorted(by_window.items())])
    first_half = (
        row | {"iteration": ALWAYS} if row["kind"] == "ranks" and row["first_iteration"] <= ALWAYS else row
        for row in rows  # what is read of ranks' hosts comes every ten seconds
    )
    kept = [row for row in first_half if row.get("iteration", 0) <= ALWAYS or row["kind"] in ("end", "event")]
    with tempfile.TemporaryDirectory() as made:
        cut = Path(made) / path.name
        cut.write_text("".join(json.dumps(row) + "\n" for row in kept))
        report = read_report(open_session(cut))
    found = [each for each in report.findings if each.gain_of == "tokens/s" and each.name not in BESIDE]
    ledgers, critical = report.ledgers, report.critical_path
    phases = phases_of([row for row in kept if row["kind"] == "cuts"])
    residual = next((one.share(one.residual_ns) for one in ledgers), 0.0)
    step_ms = ledgers[0].step_ms(ledgers[0].total_ns) if ledgers else report.figures.iteration_ms or 0.0
    return Outcome(
        step_ms=step_ms,
        true_ms=true_ms,
        spread_ms=spread_ms,
        findings=[each for each in found if each.cost_s is not None],
        traceml=traceml(phases, step_ms) if ledgers else NOTHING,
        flagscale=flagscale(phases) if ledgers else NOTHING,
        residual=abs(residual),
        path={}
        if critical is None
        else {row.rank: row.of_own or 0.0 for row in critical.rows if row.rank is not None},
    )


def cost_of(windows: Sequence[float]) -> tuple[float, float]:
    """Of windows with and without the delay in turns: what it costs, and the standard error of that. Each is
    compared with both of its neighbours, so that what changes slowly on a busy machine cancels.
    """
    triples = zip(windows, windows[1:], windows[2:], strict=False)
    costs = [
        (-1) ** number * ((before + after) / 2 - between)
        for number, (before, between, after) in enumerate(triples)
    ]
    # Neighbouring triples share windows: half of them are as good as independent.
    return statistics.fmean(costs), statistics.stdev(costs) / (len(costs) / 2) ** 0.5


def phases_of(cuts: Sequence[dict[str, list[int]]]) -> dict[int, dict[str, float]]:
    """Mean milliseconds of a step in each phase, by rank."""
    sums: dict[int, Counter[str]] = defaultdict(Counter)
    for row in cuts:
        columns, waits = row["columns"], row["waits"]
        for number, rank in enumerate(row["ranks"]):
            own = row["own_ns"][number * len(columns) : (number + 1) * len(columns)]
            waited = row["wait_ns"][number * len(waits) : (number + 1) * len(waits)]
            for column, ns in zip(columns, own, strict=True):
                sums[rank][PHASES[column % PHASE_BASE]] += ns
            for phase, ns in zip(waits, waited, strict=True):
                sums[rank][PHASES[phase]] += ns
    return {
        rank: {name: ns / len(cuts) / NS_PER_MS for name, ns in found.items()} for rank, found in sums.items()
    }


def traceml(phases: dict[int, dict[str, float]], step_ms: float) -> Said:
    """A reading of TraceML's rule for DDP: whose backward pass, waiting inside, is the shortest."""
    waited = {rank: each["backward"] + each["exposed_grad_comm"] for rank, each in phases.items()}
    order = sorted(waited, key=lambda rank: waited[rank])
    culprit, victim = order[0], order[len(order) // 2]
    impact_ms = waited[victim] - waited[culprit]
    if impact_ms < TRACEML_SILENT * step_ms:
        return NOTHING
    for phase in ("data_loading", "forward"):
        if phases[culprit][phase] - phases[victim][phase] >= TRACEML_COVERS * impact_ms:
            return Said(culprit, phase, impact_ms)
    return Said(culprit, None, impact_ms)


def flagscale(phases: dict[int, dict[str, float]]) -> Said:
    """A reading of FlagScale's detector: sections with the waiting inside, against the fastest rank."""
    sections = {rank: sum(each.values()) - each["between_steps"] for rank, each in phases.items()}
    slowest = max(sections, key=lambda rank: sections[rank])
    is_slow = sections[slowest] > FLAGSCALE_SLOW * min(sections.values())
    return Said(slowest, None, None) if is_slow else NOTHING


def judge(plant: Plant, outcome: Outcome, right: Counter[str]) -> None:
    """Counts what each says rightly. A delay inside a wait has no rank: its operation is what can be said."""
    is_inside = plant.phase == "exposed_grad_comm"

    def names(said: Said) -> tuple[bool, bool]:
        """Whether the rank, and whether rank and phase are right."""
        rank = said.rank == (None if is_inside else plant.rank) and said != NOTHING
        return rank, rank and said.phase == plant.phase

    limit_ms = _limit_ms(outcome)
    is_known = 2 * outcome.spread_ms <= limit_ms

    def near(cost_ms: float | None) -> bool:
        return is_known and cost_ms is not None and abs(cost_ms - outcome.true_ms) <= limit_ms

    ours = [_as_said(each, outcome.step_ms) for each in outcome.findings]
    by_rule: dict[str, list[Said]] = {
        "ledger": ours,
        "TraceML": [outcome.traceml],
        "FlagScale": [outcome.flagscale],
    }
    for who, said in by_rule.items():
        first = said[0] if said else NOTHING
        right[f"{who}: {KNOWN}"] += is_known
        is_small = abs(outcome.true_ms) < NEAR_OF_STEP * outcome.step_ms
        right[f"{who}: {NAMED}"] += is_small or any(names(each)[1] for each in said[:2])
        right[f"{who}: rank first"] += names(first)[0]
        right[f"{who}: rank and phase first"] += names(first)[1]
        right[f"{who}: among the first two"] += any(names(each)[1] for each in said[:2])
        named = [each.cost_ms for each in said[:2] if names(each)[0]]
        prices = named if first != NOTHING else [0.0]
        right[f"{who}: {PRICED}"] += any(map(near, prices))


def _limit_ms(outcome: Outcome) -> float:
    return max(NEAR * abs(outcome.true_ms), NEAR_OF_STEP * outcome.step_ms)


def _as_said(found: Finding, step_ms: float) -> Said:
    gain = found.gain or 0.0
    return Said(found.ranks[0] if found.ranks else None, found.phase, gain / (1 + gain) * step_ms)


def _finding_text(found: Finding, step_ms: float) -> str:
    text = _said(_as_said(found, step_ms))
    if found.least_gain is None:
        return text
    who, _, most = text.removesuffix(" ms").rpartition(" ")
    return f"{who} {found.least_gain / (1 + found.least_gain) * step_ms:.1f} to {most} ms"


def _said(said: Said) -> str:
    if said == NOTHING:
        return "-"
    cost = "" if said.cost_ms is None else f" {said.cost_ms:.1f} ms"
    who = "all" if said.rank is None else f"rank {said.rank}"
    return f"{who}{f' {said.phase}' if said.phase else ''}{cost}"


if __name__ == "__main__":
    main()
