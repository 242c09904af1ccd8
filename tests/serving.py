"""Experiments with a model that serves, on the vLLM of `tests/fake_vllm`: on one device a batch takes a ms
for each token of a prompt, and 6 ms for each further token; on two, half of the former and 5 ms.
"""

from __future__ import annotations

import sys
from pathlib import Path

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.source import Bench, read_bench

FAKE = Path(__file__).parent / "fake_vllm"


def fake_python(directory: Path) -> str:
    """A Python that has that vLLM."""
    path = directory / "python"
    path.write_text(f'#!/bin/sh\nPYTHONPATH="{FAKE}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def only_bench(directory: Path) -> Bench:
    """Of the only run file there."""
    (path,) = directory.glob("perf_records_*.jsonl")
    return read_bench(open_session(path))
