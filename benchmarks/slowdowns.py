"""How often a run that becomes slower within itself is found, and how often a healthy one is called so, by
the whole rule: what a report would print.

python benchmarks/slowdowns.py [SEED]

Simulated runs (tests/noisy.py) of seeds from SEED on, which nothing was tuned on: two minutes on an idle
machine. Where nothing is found, a change may be told that is not judged, or the size below which one would
look like chance: "hidden", if the planted one is smaller; what is neither is "missed".
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.spine.records import RUNNING, RunHeader
from flagscale_perf.store.run_file import Reading
from flagscale_perf.training.analysis.findings.anatomy import Anatomy
from flagscale_perf.training.analysis.findings.slower import slowdown_of
from flagscale_perf.training.analysis.fold import RunFold
from tests.noisy import KINDS, NAMES, STEP_NS, USUAL, plan
from tests.simulated import Process, simulate
from tests.synthetic import Plan, records_of

LENGTHS, SIZES, RUNS, PLANTED = (60, 100, 200, 300, 600, 1000, 2000), (0.02, 0.04, 0.1, 0.2), 34, 12
SAID = ("found", "not judged", "hidden", "missed")
BOTH = ["forward_ns", "backward_ns"]
PLANTS: dict[str, tuple[Sequence[str], Callable[[float], float]]] = {  # phases; how much, by the run's part
    "every phase, from half on": (NAMES, lambda at: at > 0.5),
    "forward and backward": (BOTH, lambda at: at > 0.5),
    "backward": (BOTH[1:], lambda at: at > 0.5),
    "ramp over all": (NAMES, lambda at: at),
    "two steps": (NAMES, lambda at: (at > 1 / 3) / 2 + (at > 2 / 3) / 2),
    "last 40 %": (NAMES, lambda at: at > 0.6),
    "first 40 %": (NAMES, lambda at: at <= 0.4),
}


def verdict(run: Plan, size: float = 0.0) -> str:
    """What the report says of the run's course, to which `size` was added."""
    header, *records = records_of(run)
    assert isinstance(header, RunHeader)
    fold = RunFold(header)
    for record in records:
        fold.add(record)
    report = fold.report(Reading("here", {}, 0, []), RUNNING)
    if any(finding.name in ("slowdown", "growing_phase") for finding in report.findings):
        return "found"
    told = next((line for line in report.unjudged if "the steps' course" in line), "")
    _, is_hidden, least = told.partition("a slowdown of less than ")
    if not is_hidden:
        return "not judged" if told else "missed"
    return "hidden" if "half" in least.split()[0] or float(least.split()[0]) >= 100 * size else "missed"


def planted(run: Plan, size: float, where: str) -> Plan:
    """The run, longer by `size` of a step there, in proportion to the phases."""
    names, shape = PLANTS[where]
    whole, noise = sum(USUAL[name] for name in names), run.extra

    def extra(number: int) -> dict[str, int]:
        row, at = dict(noise(number)), number / run.steps
        more = size * shape(at) * STEP_NS / whole
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
    print(head("training/analysis/findings", "spine/shift.py"))
    print(f"seeds    from {seed} on; a phase's time scatters by 0.5 to 6 %, and remembers up to 0.9 of that")
    print(f"\n{'healthy, 60 to 2,000 steps':28}{_listed(SAID[:2])}")
    for kind in KINDS:
        lengths = [random.Random(f"{kind} {one}").choice(LENGTHS) for one in range(RUNS)]
        said = [verdict(plan(kind, seed + one, steps)) for one, steps in enumerate(lengths)]
        note = "  (most become slower or faster in truth)" if kind == "drift" else ""
        print(f"{kind:28}{_counts(said, SAID[:2])}{note}", flush=True)
    print(f"\n{'planted, of 300 steps':28} {'size':>6}{_listed(SAID)}")
    for where in PLANTS:
        for size in SIZES:
            runs = [plan(("quiet", "tails")[one % 2], seed + one) for one in range(PLANTED)]
            said = [verdict(planted(run, size, where), size) for run in runs]
            print(f"{where:28} {size:>6}{_counts(said, SAID)}", flush=True)
    for size in SIZES:
        count = sum(last_of_many(seed + one, size) for one in range(PLANTED))
        print(f"{'last 1 % of a million steps':28} {size:>6}{count:>7} of {PLANTED}", flush=True)
    return 0


def _listed(names: Sequence[str]) -> str:
    return "".join(f"{name:>13}" for name in names)


def _counts(said: Sequence[str], names: Sequence[str]) -> str:
    return "".join(f"{said.count(name):>7} of {len(said)}" for name in names)


if __name__ == "__main__":
    sys.exit(main())
