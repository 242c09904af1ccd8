"""A list of sessions is the same when their rows were kept; a session that goes on is read anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.store import rows
from tests.every_instrument import WRITERS, write


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One of each instrument, one of them killed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("flagscale_perf.spine.files.TICK_NS", 0)
    monkeypatch.setattr(rows, "MIN_BYTES", 1)
    for name in WRITERS:
        (tmp_path / "runs" / name).mkdir(parents=True)
        write(name, tmp_path / "runs" / name, None if name == "training" else "completed")
    return tmp_path / "runs"


@pytest.mark.parametrize("form", ["text", "markdown", "json", "csv", "html"])
def test_the_second_list_is_the_first(
    runs: Path, form: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["runs", str(runs), "--format", form]
    shown = []
    for more in (["--no-cache"], [], []):
        if len(shown) == 2:
            monkeypatch.setattr("flagscale_perf.store.run_file.RunFile.chunks", pytest.fail)  # none is read
        assert main([*words, *more]) == 0
        shown.append(capsys.readouterr().out)
    assert shown == [shown[0]] * 3


def test_a_session_that_has_grown_is_read_anew(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["runs", str(runs), "--format", "json"]
    main(words)
    (path,) = (runs / "rpc").glob("perf_records_*.jsonl")
    path.write_bytes(path.read_bytes() + b"no record\n")
    capsys.readouterr()
    shown = [main([*words, *more]) or capsys.readouterr().out for more in ([], ["--no-cache"])]
    assert shown[0] == shown[1]
