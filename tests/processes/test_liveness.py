"""Whether a real session still runs, from wherever its run file is read: without locks, as a copy, from other
namespaces.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.store.run_file import RunFile
from tests.processes.trainer import REPO, Trainer, trainer, wait_for

NOFLOCK = "#include <errno.h>\nint flock(int fd, int op) { (void)fd; (void)op; errno = ENOSYS; return -1; }\n"
ELSEWHERE = (
    "unshare",
    "--pid",
    "--uts",
    "--fork",
    "--mount-proc",
    "sh",
    "-c",
    'hostname node7; exec "$@"',
    "sh",
)
UNKNOWN = "whether it still runs cannot be known here"


@pytest.fixture(scope="module")
def without_locks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process for which no file system has locks."""
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    source = tmp_path_factory.mktemp("noflock") / "noflock.c"
    source.write_text(NOFLOCK)
    library = source.with_suffix(".so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    return {"LD_PRELOAD": str(library)}


def seen(path: Path, env: dict[str, str] | None = None, within: tuple[str, ...] = ()) -> dict[str, Any]:
    """What each command says of the newest session there."""
    code = (
        "import json, sys, flagscale_perf; from flagscale_perf.cli import main;"
        "main(['watch', sys.argv[1], '--once']); main(['report', sys.argv[1], '--full']);"
        "main(['runs', sys.argv[1]]); run = flagscale_perf.open_run(sys.argv[1]);"
        "print(json.dumps({'is_live': run.is_live(), 'end': run.report().overview.end_reason,"
        " 'remarks': run.report().reading.remarks}))"
    )
    command = [*within, sys.executable, "-c", code, str(path)]
    done = subprocess.run(
        command, cwd=REPO, env=_environment(env), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"shown": " ".join(done.stdout.split())}  # however wide the screen was


def _environment(more: dict[str, str] | None) -> dict[str, str]:
    return {**os.environ, **(more or {})}


def end(training: Trainer) -> None:
    """Kills the trainer and its writer at once."""
    writer = training.writer()
    writer.suspend()
    training.process.send_signal(signal.SIGKILL)
    writer.kill()
    training.process.communicate()
    wait_for("the writer's end", lambda: not writer.is_running() or writer.status() == psutil.STATUS_ZOMBIE)


def begun(directory: Path, training: Trainer) -> Path:
    training.tell("put", 3)
    wait_for("the records", lambda: any(b'"step"' in each.read_bytes() for each in directory.glob("*.jsonl")))
    return open_session(directory).path


def test_without_locks_a_live_run_runs_and_a_killed_one_was_killed(
    tmp_path: Path, without_locks: dict[str, str]
) -> None:
    with trainer(tmp_path, env=without_locks) as training:
        path = begun(tmp_path, training)
        found = seen(tmp_path, without_locks)
        assert (found["is_live"], found["end"], found["remarks"]) == (True, "running", [])
        assert "killed" not in found["shown"].lower()
        assert seen(tmp_path)["end"] != "killed"  # locks work where it is read, and not where it is written
        end(training)
    os.utime(path, (0, 0))  # a writer that nobody can see may end it for some seconds
    assert seen(tmp_path, without_locks)["end"] == seen(tmp_path)["end"] == "killed"


def test_a_copy_is_not_known_whatever_became_of_the_run(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    with trainer(run) as training:
        begun(run, training)
        shutil.copytree(run, copy)
        assert seen(run)["end"] == "running"
        found = seen(copy)
        assert (found["is_live"], found["end"]) == (None, "not known")
        assert UNKNOWN in found["remarks"][0] and "NOT KNOWN" in found["shown"]
        assert found["shown"].count(UNKNOWN) == 4 and "killed" not in found["shown"].lower()
        end(training)
    assert (seen(run)["end"], seen(copy)["end"]) == ("killed", "not known")


@pytest.mark.skipif(
    subprocess.run([*ELSEWHERE, "true"]).returncode != 0, reason="needs the right to make namespaces"
)
def test_of_another_machine_a_lock_or_growth_tells_and_else_it_is_not_known(
    tmp_path: Path, without_locks: dict[str, str]
) -> None:
    with trainer(tmp_path, env=without_locks) as training:
        path, writer = begun(tmp_path, training), training.writer()
        writer.suspend()  # what grows between two looks runs
        found = seen(tmp_path, without_locks, ELSEWHERE)
        assert (found["is_live"], found["end"]) == (None, "not known")
        run = RunFile(path)
        run.header = run.header.__class__(**vars(run.header) | {"host": "node7"})
        assert run.is_live() is None
        writer.resume()
        training.tell("put", 1)
        wait_for("growth", run.is_live)
        end(training)
    assert seen(tmp_path, None, ELSEWHERE)["end"] == "not known"
    assert seen(tmp_path)["end"] == "killed"
