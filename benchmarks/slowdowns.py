"""How often a run that becomes slower within itself is found, and how often a healthy one is called so, by
the whole rule: what a report would print.

python benchmarks/slowdowns.py [SEED]

Simulated runs (tests/noisy.py) of seeds from SEED on, which nothing was tuned on: about three minutes on an
idle machine. Where a change was located but not named, it is counted as "not judged".
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.analysis.run_file import Reading
from flagscale_perf.spine.records import RUNNING, RunHeader
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.slowdown import slowdown_of
from flagscale_perf.training.analysis.fold import RunFold
from tests.noisy import KINDS, NAMES, STEP_NS, USUAL, plan
from tests.simulated import Process, simulate
from tests.synthetic import Plan, records_of

LENGTHS, SIZES, RUNS, PLANTED = (60, 100, 200, 300, 600, 1000, 2000), (0.02, 0.04, 0.1, 0.2), 34, 6
BOTH = ["forward_ns", "backward_ns"]
PLANTS: dict[str, tuple[Sequence[str], float, float]] = {  # phases, and the run's share where it begins, ends
    "every phase, from half on": (NAMES, 0.5, 1),
    "forward and backward": (BOTH, 0.5, 1),
    "backward": (BOTH[1:], 0.5, 1),
    "ramp over all": (NAMES, 0, 1),
    "last 40 %": (NAMES, 0.6, 1),
    "first 40 %": (NAMES, 0, 0.4),
}


def verdict(run: Plan) -> str:
    """What the report says of the run's course."""
    header, *records = records_of(run)
    assert isinstance(header, RunHeader)
    fold = RunFold(header)
    for record in records:
        fold.add(record)
    report = fold.report(Reading("here", {}, 0, []), RUNNING)
    if any(finding.name in ("slowdown", "growing_phase") for finding in report.findings):
        return "found"
    return "not judged" if any("the steps' course" in line for line in report.unjudged) else ""


def planted(run: Plan, size: float, where: str) -> Plan:
    """The run, longer by `size` of a step there, in proportion to the phases."""
    names, begin, end = PLANTS[where]
    whole, noise = sum(USUAL[name] for name in names), run.extra

    def extra(number: int) -> dict[str, int]:
        row, at = dict(noise(number)), number / run.steps
        more = size * (at if where.startswith("ramp") else begin < at <= end) * STEP_NS / whole
        return row | {name: row[name] + int(more * USUAL[name]) for name in names}

    return replace(run, extra=extra)


def last_of_many(seed: int, size: float) -> bool:
    """Whether it is found for the last 1 % of a million steps: the last ten of a thousand means."""
    process = Process(step_noise=0.003, tail=0.0)
    usual, slow = simulate(seed, 1000, process), simulate(seed, 1000, process, other=size)
    steps = [step._replace(iteration=1000 * step.iteration) for step in [*usual[:990], *slow[990:]]]
    return slowdown_of(Anatomy(steps)) is not None


def main() -> int:
    """Prints the tables."""
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 700_000
    print(head("training", "analysis"))
    print(f"seeds    from {seed} on\n\n{'healthy':28} {'found':>12} {'not judged':>12}")
    for kind in KINDS:
        lengths = [random.Random(f"{kind} {one}").choice(LENGTHS) for one in range(RUNS)]
        said = [verdict(plan(kind, seed + one, steps)) for one, steps in enumerate(lengths)]
        note = "  (most become slower or faster in truth)" if kind == "drift" else ""
        counts = "".join(f"{said.count(what):>6} of {RUNS}" for what in ("found", "not judged"))
        print(f"{kind:28}{counts}{note}", flush=True)
    print(f"\n{'planted, of 300 steps':28} {'size':>6} {'found':>12} {'not judged':>12}")
    for where in PLANTS:
        for size in SIZES:
            runs = [plan(("quiet", "tails")[one % 2], seed + one) for one in range(PLANTED)]
            said = [verdict(planted(run, size, where)) for run in runs]
            counts = "".join(f"{said.count(what):>8} of {PLANTED}" for what in ("found", "not judged"))
            print(f"{where:28} {size:>6}{counts}", flush=True)
    for size in SIZES:
        count = sum(last_of_many(seed + one, size) for one in range(PLANTED))
        print(f"{'last 1 % of a million steps':28} {size:>6}{count:>8} of {PLANTED}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
