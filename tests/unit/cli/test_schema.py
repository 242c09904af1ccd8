"""`schema` explains every key that records and the JSON of a training have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.cli import main
from flagscale_perf.cli.schema import every_key
from tests.every_instrument import WRITERS

# Objects whose keys are names of the run: sizes, options, records' kinds ...
OF_THE_RUN = ("parallel", "config", "records", "files", "work", "extras", "groups_ms")


@pytest.mark.parametrize("name", WRITERS)
def test_every_key_of_a_run_file_is_in_it_with_its_unit(name: str, tmp_path: Path) -> None:
    known = {(key.of, key.name): key.unit for key in every_key()}
    WRITERS[name](tmp_path)
    for path in tmp_path.glob("perf_records_*.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            kind = line.pop("kind")
            assert {(kind, key) for key in line} <= set(known)
            assert [key for key in line if re.search("_(ns|bytes)$", key) and not known[kind, key]] == []


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from paths(each, prefix)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield prefix + name
            if name not in OF_THE_RUN:
                yield from paths(inner, f"{prefix}{name}.")


def test_every_key_of_a_trainings_json_is_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    WRITERS["training"](tmp_path)
    assert main(["report", str(tmp_path), "--format", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    keys = list(every_key())
    known = {key.name for key in keys if key.of == "report"}
    points = {f"trend.points.{key.name}" for key in keys if key.of == "interval"}
    assert set(paths(made)) - known - points == set()


def test_one_kind_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "step", "--json"]) == 0
    keys = json.loads(capsys.readouterr().out)
    assert {key["of"] for key in keys} == {"step"}
    assert next(key for key in keys if key["name"] == "iteration_ns") == {
        "of": "step",
        "name": "iteration_ns",
        "type": "integer",
        "unit": "ns",
        "meaning": "start to next start, less eval_ns and checkpoint_ns, and what the job stood still.",
    }
    assert main(["schema", "nothing"]) == 1
