"""Where a writer's messages end up."""

from __future__ import annotations

import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest

from flagscale_perf.writer.console import Console, complain
from flagscale_perf.writer.messages import Figures, Line, Stray, Trouble


@pytest.mark.parametrize(("debug", "err"), [(False, "trouble\n"), (True, "trouble\na traceback\n")])
def test_lines_are_printed_and_troubles_go_to_stderr(
    capsys: pytest.CaptureFixture[str], debug: bool, err: str
) -> None:
    said: list[str] = []
    console = Console(said.append, debug)
    for message in (Line("one"), Trouble("trouble"), Stray("a traceback"), Line("two")):
        console.show(message)
    assert (said, *capsys.readouterr()) == (["one", "two"], "", err)


def test_figures_go_to_the_hosts_run(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[dict[str, float]] = []
    run = SimpleNamespace(
        define_metric=lambda *args, **options: None,
        log=lambda figures, commit: logged.append(figures),
        finish=pytest.fail,
        step=7,
    )
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))
    Console(pytest.fail, debug=False).show(Figures({"mfu": 0.5}))
    assert logged == [{"mfu": 0.5}]


def test_a_host_that_cannot_print_is_asked_once(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(line: str) -> None:
        raise ValueError(f"closed at {line}")

    console = Console(broken, debug=False)
    console.show(Line("one"))
    console.show(Line("two"))
    assert capsys.readouterr().err == (
        "flagscale_perf: console: ValueError: closed at one; no more lines on it\n"
    )


def test_without_stderr_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    complain("nobody reads this")
    assert sys.stderr is None


def test_what_it_complains_of_goes_out_in_one_piece() -> None:
    """A socket of packets keeps each write apart."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = "from flagscale_perf.writer.console import complain; complain('one', 'two')"
    subprocess.run([sys.executable, "-u", "-c", code], stderr=theirs, check=True)
    theirs.close()
    with ours:
        assert [ours.recv(100), ours.recv(100)] == [b"one\ntwo\n", b""]
