"""`flagscale-perf query`: one answer, as a table, CSV or JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.run_files import steady, write

pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")
SQL = "select iteration, model_flops, null as unknown from steps where iteration < 3 order by 1"


@pytest.fixture
def run(tmp_path: Path) -> str:
    write(tmp_path / "perf_records_20240129_103000.jsonl", steady(10))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("csv", "iteration,model_flops,unknown\n1,4000000000000,\n2,4000000000000,\n"),
        ("text", "2 rows\n\n  iteration  model_flops    unknown\n  1          4000000000000  -\n"),
    ],
)
def test_an_answer(run: str, capsys: pytest.CaptureFixture[str], form: str, printed: str) -> None:
    assert main(["query", run, SQL, "--format", form]) == 0
    assert printed in capsys.readouterr().out


def test_an_answer_as_json_in_a_file(run: str, tmp_path: Path) -> None:
    assert main(["query", run, SQL, "-o", str(tmp_path / "answer.json")]) == 0
    assert json.loads((tmp_path / "answer.json").read_text()) == {
        "columns": ["iteration", "model_flops", "unknown"],
        "rows": [[1, 4 * 10**12, None], [2, 4 * 10**12, None]],
    }


def test_a_mistake_ends_with_2_and_no_cache_leaves_none(
    run: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", run, "select iteratoin from steps", "--no-cache"]) == 2
    assert capsys.readouterr().err.startswith("'iteratoin' is no column of steps; did you mean iteration")
    assert not (tmp_path / "cache").exists()
