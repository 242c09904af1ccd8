"""Formats of other systems, and what they need."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.export.formats import EXPORTS
from tests.unit.trace.export.sample import run


def test_without_opentelemetry_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.partition(".")[0] == "opentelemetry"]:
        monkeypatch.delitem(sys.modules, name)  # what is imported already would be found
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    monkeypatch.delitem(sys.modules, "flagscale_perf.trace.export.otlp", raising=False)
    with pytest.raises(PerfError) as said:
        EXPORTS["otlp"].lines(run(tmp_path))
    what, line = str(said.value).splitlines()
    assert what == "--format otlp needs opentelemetry-exporter-otlp-proto-http, which is not installed"
    assert line.startswith(f"install it: {sys.executable} -m pip install ")
    assert line.endswith("opentelemetry-exporter-otlp-proto-http>=1.30', or take another --format")
