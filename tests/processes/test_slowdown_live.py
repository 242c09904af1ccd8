"""A real training whose steps take longer for a while says so while it lasts, and when it is over."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import flagscale as fs
from tests.processes import slowed_parts

pytestmark = pytest.mark.host

BEGINS, ENDS, STEPS = 97, 192, 288
PACE_S, LONGER_S = 0.08, 0.016  # a fifth


def test_a_slowdown_is_told_when_it_begins_and_when_it_ends(tmp_path: Path) -> None:
    plants = f"pace:{PACE_S},train_step:{LONGER_S}:steps {BEGINS}-{ENDS}"
    words = [slowed_parts.__file__, plants, fs.train_gpt(), *fs.SMALL, "--train-iters", STEPS]
    options = ["--enable-perf-monitor", "--perf-log-interval", 4, "--perf-log-dir", "perf"]
    finished = fs.run(fs.workers(1, *fs.launched(*map(str, [*words, *options]))), tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    lines = (tmp_path / "perf" / "findings.jsonl").read_text().splitlines()
    found = [row for row in map(json.loads, lines) if row["finding"] == "slowdown"]
    assert [row["state"] for row in found] == ["begins", "ends"], lines
    begun, ended = found
    assert BEGINS < begun["iteration"] <= ENDS < ended["iteration"]
    log = (tmp_path / "perf" / "perf_realtime.log").read_text()
    for row in found:
        assert f"slow: {row['text']}" in log
