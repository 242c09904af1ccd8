"""`flagscale-perf report`: what it finds, in every format, and what it refuses."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from json import loads
from pathlib import Path
from types import ModuleType

import pytest

from flagscale_perf import open_run
from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.cli.output import SUFFIXES
from flagscale_perf.report import csv, html, json, markdown, text
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.analysis.blocks import report_of
from flagscale_perf.training.analysis.fold import read_report
from tests.conftest import RunPython
from tests.every_instrument import beside
from tests.fakes import make_header, make_step
from tests.golden import golden
from tests.rpc_sessions import REQUIREMENT_LOG
from tests.run_files import left_behind, steady, write

SESSION = "20240129_103000"
NAME = f"perf_records_{SESSION}.jsonl"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    (tmp_path / NAME).write_text(golden("perf_records.jsonl"))
    return tmp_path


@pytest.mark.parametrize("words", [[], ["--session", "20240129_103000"]])
def test_a_directory(run_dir: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(["report", str(run_dir), "--full", *words]) == 0
    assert capsys.readouterr() == (golden("report.txt"), "")


def test_a_file(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir / NAME), "--full"]) == 0
    assert capsys.readouterr() == (golden("report.txt"), "")


def test_where_nothing_is_found_it_says_so(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir), "--session", "x"]) == 2
    assert capsys.readouterr() == ("", f"no session 'x' in '{run_dir}'; there are 20240129_103000\n")


def test_it_needs_no_torch(run_dir: Path, run_python: RunPython) -> None:
    heavy = "[name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules]"
    code = f"import sys; from flagscale_perf.cli import main; main(sys.argv[1:]); print({heavy})"
    assert run_python("-c", code, "report", run_dir, "--full").stdout == golden("report.txt") + "[]\n"


def test_all_sessions_of_a_directory(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir), "--all-sessions"]) == 0
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == (f"1 session in {run_dir}, as restarts of one experiment", "")
    assert main(["report", str(run_dir / NAME), "--all-sessions"]) == 2
    assert "give the directory of --perf-log-dir" in capsys.readouterr().err


@pytest.mark.parametrize("module", [markdown, json, csv])
def test_every_format_goes_to_the_terminal_or_to_a_file(
    run_dir: Path, capsys: pytest.CaptureFixture[str], module: ModuleType
) -> None:
    name = module.__name__.rpartition(".")[2]
    expected = module.render(report_of(read_report(open_session(run_dir / NAME))))
    assert main(["report", str(run_dir), "--format", name]) == 0
    assert capsys.readouterr() == (expected, "")
    out = run_dir / f"a{SUFFIXES[name][0]}"
    for words in (
        ["--format", name, "-o", str(out)],
        ["-o", str(out)],
        ["--format", name, "-o", str(run_dir / "a")],
    ):
        assert main(["report", str(run_dir), *words]) == 0
        assert Path(words[-1]).read_text() == expected
        size = f"{len(expected.encode()) / 1e3:.1f} kB"
        assert capsys.readouterr() == ("", f"wrote {words[-1]} ({size})\n")
    assert main(["report", str(run_dir), "--format", name, "-o", "-"]) == 0
    assert capsys.readouterr() == (expected, "")


@pytest.mark.parametrize(
    "name",
    [
        f"perf_{view.format(SESSION)}"
        for view in (
            *("summary_{}.json", "metrics_{}.log", "metrics_{}.12.log", "intervals_{}.csv"),
            *("report_{}.html", "realtime.log"),
        )
    ],
)
def test_any_file_of_a_session_stands_for_it(run_dir: Path, capsys, name: str) -> None:
    (run_dir / name).write_text("not read")
    assert main(["report", str(run_dir / name), "--full"]) == 0
    assert capsys.readouterr() == (golden("report.txt"), "")


def test_all_sessions_are_text_only(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(run_dir), "--all-sessions", "--format", "json"]) == 2
    assert (
        capsys.readouterr().err
        == "--all-sessions is text only, not 'json'; leave --format out, or --all-sessions\n"
    )
    assert main(["report", str(run_dir), "--all-sessions", "--page", "a.html"]) == 2
    assert capsys.readouterr().err == "--page a.html: of one session; leave it out, or --all-sessions\n"


def test_one_screen_the_whole_and_a_page(run_dir: Path, capsys, monkeypatch) -> None:
    whole = report_of(read_report(open_session(run_dir / NAME)))
    monkeypatch.chdir(run_dir.parent)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable))
    command = f"next   flagscale-perf report {run_dir.name} --full  # all figures\n"
    assert main(["report", str(run_dir)]) == 0
    assert capsys.readouterr() == (text.screen(whole) + command, "")
    assert main(["report", str(run_dir), "--full"]) == 0
    assert capsys.readouterr() == (text.render(whole), "")
    page = run_dir / "a.html"
    assert main(["report", str(run_dir), "--page", str(page)]) == 0
    out = capsys.readouterr().out
    assert out == text.screen(whole) + f"page   {run_dir.name}/a.html\n" + command
    assert len(out.splitlines()) <= text.SCREEN_LINES
    assert page.read_text() == html.render(whole)
    assert main(["report", str(run_dir), "-o", str(run_dir / "a.txt")]) == 0
    assert (run_dir / "a.txt").read_text() == text.render(whole)


def test_lines_that_are_left_out_are_told_beside_a_table_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_bytes(encode(make_header()) + b"\x1b[2J\n" + encode(make_step(1)))
    left_behind(path)
    assert main(["report", str(path), "--format", "csv"]) == 0
    assert (
        capsys.readouterr().err
        == f"{path}: lines that are no records: 1; line 2: JSON is malformed: invalid character (byte 0)\n"
    )


def test_where_nothing_but_the_header_can_be_read_it_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_bytes(encode(make_header()) + b"x\n" * 3)
    assert main(["report", str(path)]) == 1
    out, err = capsys.readouterr()
    assert (out.splitlines()[0], err) == (
        "Run 20240129_103000",
        f"{path}: none of the 3 lines after the header is a record\n",
    )
    path.write_bytes(encode(make_header()))  # a run that has just begun
    assert main(["report", str(path)]) == 0


@pytest.mark.parametrize("content", [b"", b"\x00" * 5000, b"{}\n", b"PK\x03\x04 a zip\n", b"[" * 100_000])
def test_a_foreign_file_is_refused_with_2(
    tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NAME).write_bytes(content)
    assert main(["report", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert (out, "Traceback" in err) == ("", False)
    assert "not a run file" in err


WINDOWS = """
import os, sys
sys.modules |= dict.fromkeys(("fcntl", "termios", "tty", "pwd", "grp", "resource"))
for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "uname"):
    delattr(os, name)
from flagscale_perf import open_run
from flagscale_perf.cli import main
run = sys.argv[1]
for words in (["report", run], ["runs", run], ["compare", run, run], ["watch", run, "--once"]):
    print(words[0], main(words))
print(open_run(run).is_live())
"""


def test_a_run_is_read_where_files_have_no_locks_and_terminals_no_modes(run_python, tmp_path: Path) -> None:
    write(tmp_path / NAME, steady(40))
    done = run_python("-c", WINDOWS, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    ends = [line for line in done.stdout.splitlines() if line.split(" ")[-1] in ("0", "None")]
    assert [each for each in ends if each[0] != " "] == ["report 0", "runs 0", "compare 0", "watch 0", "None"]


def test_joined_files_are_read_to_the_second_header_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / NAME, steady(40))
    path.write_bytes(path.read_bytes()[:-9] + path.read_bytes())
    told = "a second header at line 81: files were joined, or one doubled; not read from there on"
    for words in (["report"], ["report", "--full"], ["report", "--format", "html", "-o", "-"], ["runs"]):
        assert main([*words, str(tmp_path)]) == 0
        assert told in " ".join(capsys.readouterr().out.split())
    assert open_run(path).report().overview.last_iteration == 39
    assert main(["report", str(path), "--format", "json"]) == 0
    assert told in loads(capsys.readouterr().out)["reading"]["remarks"]
    assert main(["report", str(path), "--format", "csv"]) == 0
    assert told in capsys.readouterr().err
    assert main(["watch", str(path), "--once"]) == 0
    told = "a second header: files were joined, or one doubled; not read from there on"
    assert told in capsys.readouterr().out


def test_a_header_of_another_program_s_making_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / NAME
    path.write_bytes(encode(make_header("nonsense")))
    assert main(["report", str(path)]) == 2
    assert (
        capsys.readouterr().err
        == "'nonsense' is not a session id such as 20240129_103000; this is not a run file of"
        " flagscale_perf\n"
    )


@pytest.mark.parametrize(
    ("damage", "code", "said"),
    [
        ("", 0, ""),
        ("4  x\n", 1, "a.log:8: 2 values, not 10\n"),
        ("4     Matmul  1 1", 1, "a.log:8: cut off\n"),
    ],
)
def test_a_log_of_calls_alone(tmp_path, monkeypatch, capsys, damage, code, said) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(REQUIREMENT_LOG + damage)
    assert main(["report", "a.log"]) == code
    out, err = capsys.readouterr()
    assert "calls           3" in out and err == said  # what is good is shown


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "",
            "a.log:1: the file is empty; this is not a run file of flagscale_perf, "
            "or its run has only just begun\n",
        ),
        (
            "ZeroMQ Performance Log - Transport: IPC\n",
            "a.log:3: the line with the names of the columns is missing\n",
        ),
    ],
)
def test_what_is_no_log_is_refused(tmp_path, monkeypatch, capsys, text, said) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.log").write_text(text)
    os.utime("a.log", (0, 0))  # so old that nobody is just beginning it
    assert main(["report", "a.log"]) == 2
    assert capsys.readouterr() == ("", said)


def test_a_session_of_another_instrument_in_the_directory_is_named(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier, damaged = "20240129_102959", "20240129_102958"
    header = make_header(session_id=earlier)
    before_ns = header.start_wall_ns - 3_600_000_000_000  # over when this one begins
    (run_dir / f"perf_records_{earlier}.jsonl").write_bytes(
        encode(replace(header, instrument="rpc", start_wall_ns=before_ns))
    )
    (run_dir / f"perf_records_{damaged}.jsonl").write_bytes(b"{\n")
    said = f"the rpc session {earlier} is here, too; --session {earlier} shows it\n"
    assert main(["report", str(run_dir), "--full"]) == 0
    assert capsys.readouterr() == (golden("report.txt"), said)
    assert main(["report", str(run_dir), "--full", "--session", SESSION]) == 0
    assert capsys.readouterr() == (golden("report.txt"), "")


def test_one_instrument_of_a_job_or_one_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    beside(tmp_path, "training", 10, 80, (7,), pid=7)
    beside(tmp_path / "calls", "rpc", 20, 70, (7,), pid=7)
    trace = beside(tmp_path / "queue", "trace", 20, 70, (7,), pid=6)
    assert main(["report", str(tmp_path), "--full"]) == 0
    whole = capsys.readouterr()
    assert "Where the time goes" in whole.out and "with rpc" in whole.out
    assert whole.err == ""  # nothing is hidden that would have to be named
    assert main(["report", str(tmp_path), "--full", "--instrument", "rpc"]) == 0
    alone = capsys.readouterr().out
    assert main(["report", str(tmp_path / "calls"), "--full"]) == 0
    assert alone == capsys.readouterr().out
    assert main(["report", str(tmp_path), "--session", "20240129_100010", "--full"]) == 0
    assert "with rpc" not in capsys.readouterr().out
    assert main(["report", str(tmp_path), "--instrument", "rcp"]) == 2
    assert capsys.readouterr().err == (
        f"no session of the instrument 'rcp' in {str(tmp_path)!r}; there are sessions of rpc, trace,"
        " training; did you mean rpc?\n"
    )
    sample = "train_0:0"
    assert main(["report", str(tmp_path), "--sample", sample]) == main(
        ["report", str(trace), "--sample", sample]
    )
