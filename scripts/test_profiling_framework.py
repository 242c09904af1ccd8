#!/usr/bin/env python3
"""Checks on this machine that profiling works: operators are seen, in their layers, and the books close.

python scripts/test_profiling_framework.py
python -c "from test_profiling_framework import test_torch_operations_profiling as t; t()"  # in scripts/
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli.instruments import load_records
from flagscale_perf.cli.profile import written
from flagscale_perf.profile.analysis.instrument import read_report
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.standalone.model import TRAIN, Run
from flagscale_perf.profile.standalone.run import profile

WANTED = {"matmul", "attention", "activation", "embedding", "optimizer", "host"}
CLOSED = 0.95


def test_torch_operations_profiling() -> None:
    """Two steps of a small Qwen3. Raises AssertionError naming what was not seen."""
    found = _profiled()
    sums = found.main
    assert sums is not None, "0 rows: nothing was profiled"
    missing = WANTED.difference(sums.kinds)
    assert not missing, f"these kinds of work were not seen: {', '.join(sorted(missing))}"
    layers = [place.name for place in sums.places if place.number is not None]
    assert layers == ["layer 0", "layer 1", "layer 2", "layer 3"], f"the layers seen are {layers}"
    coverage = sums.mean.coverage or 0.0
    assert coverage > CLOSED, f"rows account for {100 * coverage:.1f} % of the step"


def _profiled() -> ProfileReport:
    load_records()
    with tempfile.TemporaryDirectory() as directory:
        profile(Run(None, 2, 1, 16, 1, 64, TRAIN, Path(directory)))
        return read_report(open_session(written(Path(directory), set())))


def main(argv: list[str] | None = None) -> int:
    """Says whether profiling works; 1 where it does not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(argv)
    try:
        test_torch_operations_profiling()
    except AssertionError as failure:
        print(f"profiling does not work here: {failure}", file=sys.stderr)
        return 1
    print("profiling works: operators in their layers, and the books close")
    return 0


if __name__ == "__main__":
    sys.exit(main())
