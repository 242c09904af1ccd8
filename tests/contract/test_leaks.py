"""The watch over leftovers must see each kind of leftover. Every test leaves one, sees it named, and takes it
away again.
"""

import os
import socket
import subprocess
import sys
import threading

import pytest

from tests.leaks import Traces, left_behind


@pytest.fixture
def before() -> Traces:
    return Traces.now()


def test_nothing_done_leaves_nothing(before: Traces) -> None:
    assert left_behind(before) == []


def test_a_thread_is_seen(before: Traces) -> None:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name="lingerer")
    thread.start()
    found = left_behind(before, grace_s=0)
    release.set()
    thread.join()
    assert found == ["thread 'lingerer'"]


def test_a_child_process_is_seen(before: Traces) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = left_behind(before, grace_s=0)
    assert [row.split(" (")[0] for row in found] == [f"child process {child.pid}"]


def test_a_socket_is_seen_until_it_is_closed(before: Traces) -> None:
    with socket.socket() as endpoint:
        target = os.readlink(f"/proc/self/fd/{endpoint.fileno()}")
        found = left_behind(before, grace_s=0)
    assert found == [f"open {target}"]
    assert left_behind(before) == []


def test_an_open_file_is_seen(before: Traces, tmp_path) -> None:
    with (tmp_path / "run.jsonl").open("w"):
        found = left_behind(before, grace_s=0)
    assert found == [f"open {tmp_path}/run.jsonl"]


def test_an_import_hook_is_seen(before: Traces, monkeypatch) -> None:
    class Finder: ...

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    (found,) = left_behind(before, grace_s=0)
    assert found.startswith("sys.meta_path holds (") and "Finder" in found


def test_an_environment_variable_is_seen(before: Traces, monkeypatch) -> None:
    monkeypatch.setenv("LEFT_BY_A_TEST", "1")
    assert left_behind(before, grace_s=0) == ["environment variable LEFT_BY_A_TEST='1', before None"]


def test_another_working_directory_is_seen(before: Traces, monkeypatch, tmp_path) -> None:
    home = os.getcwd()
    monkeypatch.chdir(tmp_path)
    assert left_behind(before, grace_s=0) == [f"working directory {tmp_path}, before {home}"]


def test_a_test_that_leaves_something_fails(run_python, repo, tmp_path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "test_bad.py").write_text(
        "import os\ndef test_bad():\n    os.environ['LEFT_BY_A_TEST'] = '1'\n"
    )
    result = run_python(
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        tmp_path,
        tmp_path,
        env={"PYTHONPATH": str(repo)},
    )
    assert result.returncode == 1
    assert "1 passed, 1 error" in result.stdout
    assert "left behind: environment variable LEFT_BY_A_TEST='1'" in result.stdout
