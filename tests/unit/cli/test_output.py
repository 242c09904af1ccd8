"""Where what a command makes goes; the refusals are in tests/golden/wrong_input.txt."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from tests.golden import golden


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / "perf_records_20240129_103000.jsonl").write_text(golden("perf_records.jsonl"))
    return tmp_path


def test_a_picture_goes_to_a_file_or_through_a_pipe(run_dir: Path, capfdbinary, monkeypatch) -> None:
    assert main(["report", str(run_dir), "--output", str(run_dir / "a.png")]) == 0
    picture = (run_dir / "a.png").read_bytes()
    assert picture.startswith(b"\x89PNG")
    capfdbinary.readouterr()
    assert main(["report", str(run_dir), "--format", "png", "-o", "-"]) == 0
    assert capfdbinary.readouterr().out[:8] == picture[:8]
    picture_told = "which a terminal cannot show; add -o report.png, or -o - for a pipe\n"
    for is_terminal in (False, True):
        monkeypatch.setattr("sys.stdout.isatty", lambda is_terminal=is_terminal: is_terminal)
        assert main(["report", str(run_dir), "--format", "png"]) == 2
        assert capfdbinary.readouterr().err.decode() == f"--format png makes a picture, {picture_told}"
        assert main(["report", str(run_dir), "--format", "html"]) == (2 if is_terminal else 0)
        if not is_terminal:
            assert capfdbinary.readouterr().out.startswith(b"<!DOCTYPE html>")
            continue
        told = (
            "--format html makes a page of 2 MB and more, which a terminal cannot show; add -o report.html\n"
        )
        assert capfdbinary.readouterr() == (b"", told.encode())


def test_a_device_is_written_to_and_not_replaced(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(run_dir / "pipe")
    reader = os.open(run_dir / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert main(["report", str(run_dir), "--format", "json", "-o", str(run_dir / "pipe")]) == 0
        assert b'"report_version"' in os.read(reader, 1 << 20)[:100]
    finally:
        os.close(reader)
    assert stat.S_ISFIFO((run_dir / "pipe").stat().st_mode)
    assert main(["report", str(run_dir), "-o", os.devnull]) == 0
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_what_cannot_be_written_is_said(
    run_dir: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flagscale_perf.cli.output.replace_file", full)
    assert main(["report", str(run_dir), "-o", str(run_dir / "x.txt")]) == 2
    assert capsys.readouterr().err == (
        f"-o {run_dir}/x.txt: cannot be written (No space left on device); name another file\n"
    )


def test_rows_go_to_a_file_as_a_whole(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir), "--format", "csv"]) == 0
    shown = capsys.readouterr().out
    assert main(["report", str(run_dir), "-o", str(run_dir / "a.csv")]) == 0
    assert (run_dir / "a.csv").read_text() == shown
    assert main(["report", str(run_dir), "--format", "csv", "-o", "/dev/null"]) == 0
    assert sorted(path.name for path in run_dir.iterdir()) == ["a.csv", "perf_records_20240129_103000.jsonl"]
    os.mkdir(run_dir / ".b.csv.tmp")  # in the way
    assert main(["report", str(run_dir), "-o", str(run_dir / "b.csv")]) == 2
    assert "cannot be written" in capsys.readouterr().err
