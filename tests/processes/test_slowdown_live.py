"""What the writer says of steps that take a fifth longer, while the training goes on."""

from __future__ import annotations

import json
from pathlib import Path

from tests.processes.trainer import text_of, trainer, wait_for


def told(directory: Path) -> list[dict[str, str]]:
    rows = map(json.loads, text_of(directory, "findings.jsonl").splitlines())
    return [row for row in rows if row["finding"] == "slowdown"]


def test_a_slowdown_is_told_while_it_lasts_and_when_it_is_over(tmp_path: Path) -> None:
    with trainer(tmp_path, perf_log_interval=4) as training:
        training.tell("put", 100, 100)
        training.tell("put", 100, 120)
        (begun,) = wait_for("its beginning", lambda: told(tmp_path))
        training.tell("put", 100, 100)
        _, over = wait_for("its end", lambda: told(tmp_path)[:2] if told(tmp_path)[1:] else [])
        training.end("return")
    since = "a step takes 20 % longer since about iteration 101 (100.0 to 120.0 ms)"
    assert (begun["state"], begun["text"]) == ("begins", since)
    assert (over["state"], over["text"]) == ("ends", "steps are back to 100.0 ms since about iteration 201")
    assert len(told(tmp_path)) == 2
    live = text_of(tmp_path, "perf_realtime.log")
    assert [live.count(f"slow: {each['text']}") for each in (begun, over)] == [1, 1]
