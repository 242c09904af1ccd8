"""A run in Python: what holds it back, its phases, its slowest steps, and its ranks.

python examples/analysis/read_report.py [RUN_DIR_OR_FILE]        (default: logs/perf_monitor)

The tables need pandas; the findings need nothing but the standard library. What is used here is explained in
docs/reading.md.
"""

import sys

from flagscale_perf import PerfError, open_run

SLOWEST = 3


def main(path: str) -> None:
    """Prints it. Raises PerfError where there is no run, and without pandas."""
    run = open_run(path)
    for finding in run.findings():
        gain = "" if finding.gain is None else f" (at most +{finding.gain:.1%} {finding.gain_of})"
        print(f"{finding.name}: {finding.title}{gain}")

    steps = run.steps()
    slowest = steps[~steps["warmup"]].nlargest(SLOWEST, "iteration_ms")
    print("\nslowest iterations")
    print(slowest[["iteration", "iteration_ms", "outcome"]].to_string(index=False))

    phases = run.phases()
    if len(phases):
        print("\nmean of each phase, ms")
        print(phases.drop(columns="iteration").mean().dropna().round(1).to_string())

    ranks = run.ranks()
    if len(ranks):
        print("\nmedian work of each rank, ms")
        print(ranks.groupby("rank")["work_ms"].median().round(1).to_string())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        sys.exit(f"one run at a time: python {sys.argv[0]} [RUN_DIR_OR_FILE]")
    try:
        main(sys.argv[1] if len(sys.argv) > 1 else "logs/perf_monitor")
    except PerfError as error:
        sys.exit(str(error))
