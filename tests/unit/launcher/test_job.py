"""One job at a time: it keeps its output and exit status, and stopping it ends all of its processes."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest

from flagscale_perf.launcher import job
from flagscale_perf.launcher.job import (
    exit_code,
    job_elsewhere,
    refuse_if_running,
    running_job,
    start_job,
    stop_job,
    was_stopped,
)
from flagscale_perf.launcher.paths import ExperimentPaths
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.processes import process_stat

DEADLINE_S = 60


@pytest.fixture
def paths(tmp_path):
    paths = ExperimentPaths.of(str(tmp_path / "exp"), None, "/")
    paths.make()
    return paths


@pytest.fixture
def start(paths):
    """Starts a job whose script is the given bash code; ends what a failed test left."""
    started = []

    def run(code):
        with open(paths.script, "w") as file:
            file.write(code)
        started.append(start_job(paths))
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def write_pid_file(paths, *words):
    with open(paths.pid_file, "w") as file:
        file.write(" ".join(map(str, words)))


def test_job_has_its_own_session_and_leaves_output_and_exit_status(paths, start) -> None:
    process = start("echo out; echo err >&2; exit 7")
    assert process.wait() == 7
    assert exit_code(paths) == 7
    assert running_job(paths) is None
    with open(paths.output) as file:
        assert file.read() == "out\nerr\n"
    assert start("ps -o sid= -p $$; ps -o pid= -p $PPID").wait() == 0
    with open(paths.output) as file:
        session, parent = file.read().split()
    assert session == parent != str(os.getsid(0))


def outputs(paths):
    """Names and contents of all output files."""
    names = [name for name in os.listdir(paths.log_dir) if ".output" in name]
    return {name: Path(paths.log_dir, name).read_text() for name in names}


def test_every_job_has_an_output_file_of_its_own(paths, start) -> None:
    for word in ("one", "two", "three"):
        assert start(f"echo {word}").wait() == 0
        os.utime(paths.output, (1_700_000_000, 1_700_000_000))
    ended = f"{datetime.fromtimestamp(1_700_000_000):%Y%m%d_%H%M%S}"
    assert outputs(paths) == {
        "host_0_localhost.output": "three\n",
        f"host_0_localhost.output.{ended}": "one\n",
        f"host_0_localhost.output.{ended}_2": "two\n",
    }


def test_a_job_that_printed_nothing_leaves_no_file_behind(paths, start) -> None:
    assert start("exit 0").wait() == start("echo two").wait() == 0
    assert outputs(paths) == {"host_0_localhost.output": "two\n"}


def test_a_link_to_a_larger_disk_stays_a_link(paths, start, tmp_path) -> None:
    os.symlink(tmp_path / "big", paths.output)
    assert start("echo one").wait() == start("echo two").wait() == 0
    assert os.path.islink(paths.output)
    assert (tmp_path / "big").read_text() == "two\n"
    assert [path.read_text() for path in tmp_path.glob("big.*")] == ["one\n"]


def test_a_schedulers_signals_cost_no_exit_status(paths, start, tmp_path) -> None:
    signals = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, signal.SIGALRM, signal.SIGVTALRM]
    os.mkfifo(tmp_path / "gate")
    names = " ".join(each.name for each in signals)
    process = start(
        f"trap : {names}; touch {tmp_path}/up; until read -r line <{tmp_path}/gate; do :; done; exit 3"
    )
    while not (tmp_path / "up").exists():
        time.sleep(0.01)
    for number in signals:
        os.killpg(process.pid, number)
    (tmp_path / "gate").write_text("go\n")
    assert (process.wait(), exit_code(paths)) == (3, 3)


def test_process_that_reads_its_input_does_not_wait_for_it(start) -> None:
    assert start("read -r line && exit 3; exit 0").wait() == 0


def test_second_job_is_refused_while_the_first_runs(paths, start, tmp_path) -> None:
    os.mkfifo(tmp_path / "gate")
    process = start(f"read -r line <{tmp_path}/gate")
    assert running_job(paths).pid == process.pid
    with pytest.raises(PerfError) as refusal:
        start_job(paths)
    assert str(refusal.value) == (
        f"experiment.exp_dir: a job of {paths.exp_dir} is running already (pid {process.pid}); stop it "
        "with action=stop,"
        " look at it with action=query, or give another experiment.exp_dir"
    )
    (tmp_path / "gate").write_text("go\n")
    assert process.wait() == 0
    refuse_if_running(paths)


def test_only_one_of_two_commands_at_once_starts_a_job(paths, tmp_path) -> None:
    code = (
        "import sys; from flagscale_perf.launcher.job import start_job; "
        "from flagscale_perf.launcher.paths import ExperimentPaths\n"
        "from flagscale_perf.spine.errors import PerfError\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "try: start_job(ExperimentPaths(*sys.argv[1:])).wait(); print('ran')\n"
        "except PerfError as error: print('refused')"
    )
    with open(paths.script, "w") as file:
        file.write(f"while [ ! -e {tmp_path}/answered ]; do sleep 0.05; done; echo line")
    commands = [
        subprocess.Popen(
            [sys.executable, "-c", code, paths.exp_dir, paths.log_dir, "/"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for command in commands:
        assert command.stdout.readline() == "ready\n"
    for command in commands:
        command.stdin.write("go\n")
        command.stdin.flush()
    wait_for(lambda: [command.poll() for command in commands].count(None) == 1)
    (tmp_path / "answered").touch()
    answers = sorted(command.communicate(timeout=DEADLINE_S)[0] for command in commands)
    assert answers == ["ran\n", "refused\n", "refused\n", "refused\n"]
    with open(paths.output) as file:
        assert file.read() == "line\n"


def test_stop_ends_the_job_with_sigterm_and_keeps_its_exit_status(paths, start, tmp_path) -> None:
    process = start(f"trap 'exit 9' TERM; touch {tmp_path}/up; while :; do sleep 0.05; done")
    wait_for((tmp_path / "up").exists)
    assert stop_job(paths, DEADLINE_S) == f"stopped the job of {paths.exp_dir} (pid {process.pid})"
    assert process.wait() == 9
    assert exit_code(paths) == 9
    assert was_stopped(paths)
    assert stop_job(paths) == f"nothing running in {paths.exp_dir}"


@pytest.mark.parametrize("by_user", [True, False])
def test_the_job_can_tell_a_stop_from_any_other_sigterm(paths, start, tmp_path, by_user) -> None:
    code = "trap 'test -e $FLAGSCALE_PERF_STOP_NOTE && exit 9; exit 8' TERM"
    process = start(f"{code}; touch {tmp_path}/up; while :; do sleep 0.05; done")
    wait_for((tmp_path / "up").exists)
    if by_user:
        stop_job(paths, DEADLINE_S)
    else:
        os.killpg(process.pid, signal.SIGTERM)
    assert process.wait() == (9 if by_user else 8)
    assert was_stopped(paths) == by_user


def test_the_next_job_is_not_taken_for_stopped(paths, start, tmp_path) -> None:
    start(f"touch {tmp_path}/up; sleep 60")
    wait_for((tmp_path / "up").exists)
    stop_job(paths, DEADLINE_S)
    assert was_stopped(paths)
    assert start("test ! -e $FLAGSCALE_PERF_STOP_NOTE").wait() == 0
    assert not was_stopped(paths)


def test_stop_kills_a_job_that_stays_and_its_workers_in_sessions_of_their_own(paths, start, tmp_path) -> None:
    worker = (
        f"trap '' TERM; echo $$ >{tmp_path}/worker.new; mv {tmp_path}/worker.new {tmp_path}/worker; "
        "while :; do sleep 0.05; done"
    )
    process = start(
        f"trap '' TERM; setsid bash -c \"{worker.replace('$', chr(92) + '$')}\" & while :; do sleep "
        "0.05; done"
    )
    wait_for((tmp_path / "worker").exists)
    pid = int((tmp_path / "worker").read_text())
    assert (
        stop_job(paths, 0.5)
        == f"killed the job of {paths.exp_dir} (pid {process.pid}): it did not end within 0.5 s of SIGTERM"
    )
    assert process.wait() == -signal.SIGKILL
    wait_for(lambda: process_stat(pid) is None)
    assert exit_code(paths) is None


@pytest.mark.parametrize("wrong", ["start", "session"])
def test_process_id_used_again_is_not_the_job(paths, wrong) -> None:
    bystander = subprocess.Popen(["sleep", "60"], start_new_session=wrong == "start")
    try:
        started = process_stat(bystander.pid).start_ticks
        write_pid_file(paths, bystander.pid, started - 1 if wrong == "start" else started)
        assert running_job(paths) is None
        assert stop_job(paths) == f"nothing running in {paths.exp_dir}"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize("text", ["", "x", "1", "1 2 3", "0 0", "-1 5", "999999999 1", "\x00"])
def test_damaged_pid_file_is_no_job(paths, text) -> None:
    write_pid_file(paths, text)
    assert running_job(paths) is None
    assert stop_job(paths) == f"nothing running in {paths.exp_dir}"


def test_zombie_is_no_job(paths) -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert process_stat(process.pid) is None
    process.wait()


def test_killed_job_has_no_exit_status(paths, start, tmp_path) -> None:
    process = start(f"touch {tmp_path}/up; sleep 60")
    wait_for((tmp_path / "up").exists)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert exit_code(paths) is None
    assert start("exit 0").wait() == 0  # a stale pid file does not stand in the way
    assert exit_code(paths) == 0


@pytest.mark.parametrize("name", ["output", "pid_file", "lock_file"])
def test_a_directory_in_the_place_of_a_file_is_a_mistake_of_the_user(paths, name) -> None:
    os.mkdir(getattr(paths, name))
    with pytest.raises(PerfError) as refusal:
        start_job(paths)
    assert str(refusal.value) == (
        f"experiment.exp_dir: cannot start a job of {paths.exp_dir}: [Errno 21] Is a directory: "
        f"{getattr(paths, name)!r};"
        " give a directory that can be written"
    )


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_without_locks_a_job_starts_and_a_live_one_is_not_started_over(
    paths, start, tmp_path, monkeypatch, number
) -> None:
    def no_locks(fd, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    os.mkfifo(tmp_path / "gate")
    with open(paths.script, "w") as file:
        file.write(f"read -r line <{tmp_path}/gate")
    said = []
    process = start_job(paths, said.append)
    assert said == [
        f"{paths.exp_dir} is on a file system without locks: two starts at once are not prevented"
    ]
    with pytest.raises(PerfError, match="is running already"):
        start_job(paths)
    (tmp_path / "gate").write_text("go\n")
    assert process.wait() == 0
    assert start("exit 3").wait() == 3


def started_elsewhere(paths, grew_s_ago=None):
    """The pid file as another machine has left it; pid and start are those of a process here."""
    here = process_stat(os.getsid(0)) or process_stat("self")
    write_pid_file(paths, os.getsid(0), here.start_ticks, "node7", "another-boot/4026531836")
    if grew_s_ago is not None:
        Path(paths.output).write_text("iteration 1/ 9\n")
        os.utime(paths.output, (time.time() - grew_s_ago,) * 2)


def test_a_job_of_another_machine_is_neither_running_nor_ended_here(paths, start) -> None:
    started_elsewhere(paths, grew_s_ago=7200)
    assert running_job(paths) is None
    what = f"the job that was started on node7 (pid {os.getsid(0)}) may still run"
    there = f"{what}: its files last grew 7200 s ago"
    assert str(job_elsewhere(paths)) == there
    with pytest.raises(PerfError) as refusal:
        stop_job(paths)
    assert str(refusal.value) == (
        f"action=stop: {there}, which cannot be looked up or stopped from here; stop it there"
    )
    said = []
    refuse_if_running(paths, said.append)  # nothing says that it lives: it is said, and not refused
    assert said == [f"{paths.exp_dir}: {there}"]
    assert start("exit 0").wait() == 0
    assert job_elsewhere(paths) is None


def test_a_job_of_another_machine_whose_files_grow_is_not_started_over(paths) -> None:
    started_elsewhere(paths, grew_s_ago=1)
    grower = threading.Timer(0.2, lambda: Path(paths.output).write_text("iteration 2/ 9 |\n"))
    grower.start()
    try:
        with pytest.raises(PerfError) as refusal:
            start_job(paths)
    finally:
        grower.join()
    assert str(refusal.value) == (
        f"experiment.exp_dir: a job of {paths.exp_dir} is running on node7 (pid {os.getsid(0)}): its files"
        " grow; stop it there, or give another experiment.exp_dir"
    )


def test_a_job_of_another_machine_whose_files_have_just_stopped_growing_is_waited_for(
    paths, start, monkeypatch
) -> None:
    monkeypatch.setattr(job, "GROWTH_S", 1.0)
    started_elsewhere(paths, grew_s_ago=0.5)
    assert start("exit 0").wait() == 0


def test_a_job_of_another_machine_that_left_its_exit_status_has_ended(paths) -> None:
    started_elsewhere(paths, grew_s_ago=1)
    Path(paths.exit_file).write_text("0\n")
    assert job_elsewhere(paths) is None
    refuse_if_running(paths)
    assert stop_job(paths) == f"nothing running in {paths.exp_dir}"
