"""`flagscale-perf seal` and `report --format parquet`."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.every_instrument import beside
from tests.run_files import steady, write

pytest.importorskip("pyarrow")
NAME = "perf_records_20240129_103000.jsonl"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return write(tmp_path / "run" / NAME, steady(10)).parent


def test_it_says_what_it_did(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["seal", str(run)]) == 0
    assert capsys.readouterr().out.startswith("1 run file sealed, ")
    assert main(["seal", str(run)]) == 0
    assert capsys.readouterr().out == "0 run files sealed, 0 rows; 1 sealed already\n"


def test_what_is_left_out_is_said_and_the_end_is_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "perf_records_20240130_103000.jsonl").write_text("hello\n")
    assert main(["seal", str(run)]) == 1
    assert "perf_records_20240130_103000.jsonl: left out: " in capsys.readouterr().err
    assert main(["seal", str(run / "nothing")]) == 2


def test_a_report_as_tables(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "tables"
    assert main(["report", str(run), "--format", "parquet", "-o", str(out)]) == 0
    assert f"wrote {out} (" in capsys.readouterr().err
    assert {"kind=step", "kind=header", "kind=run", "kind=finding"} <= {path.name for path in out.iterdir()}
    assert not (run / "cache").exists()


@pytest.mark.parametrize(("words", "kind"), [([], "step"), (["--instrument", "profile"], "profile_step")])
def test_tables_are_of_the_leading_session_or_of_the_instrument_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], kind: str
) -> None:
    beside(tmp_path / "run", "training", 10, 50)
    beside(tmp_path / "run", "profile", 20, 30)
    out = tmp_path / "tables"
    assert main(["report", str(tmp_path / "run"), "--format", "parquet", "-o", str(out), *words]) == 0
    kinds = {path.name for path in out.iterdir()}
    assert {"kind=step", "kind=profile_step"} & kinds == {f"kind={kind}"}
    left_out = "tables of the training alone; --instrument profile for those of the profile"
    assert (left_out in capsys.readouterr().err) is (not words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--format parquet makes a directory of tables; name one, such as -o tables"),
        (["-o", "-"], "--format parquet makes a directory of tables; name one, such as -o tables"),
        (
            ["-o", "out", "--page", "p.html"],
            "--page goes with no tables; leave it out, or --format parquet",
        ),
    ],
)
def test_a_mistake(run: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str) -> None:
    assert main(["report", str(run), "--format", "parquet", *words]) == 2
    assert capsys.readouterr().err == says + "\n"
