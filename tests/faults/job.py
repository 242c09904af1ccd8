"""One training under a fault: started, watched line by line, ended; and what it left."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL
from typing import NamedTuple

import psutil

from tests.faults.load import Load
from tests.faults.shim import Shim
from tests.processes import flagscale as fs

LOOP, FLAGSCALE, TWO_RANKS = "loop", "FlagScale", "FlagScale, 2 ranks"
RESTARTED = "FlagScale, --max-restarts=1"
LOG_DIRECTORY = "perf"
TENSORBOARD = "tb"
HOLD = "go"  # in the directory of a training that is held, with the iteration behind it
REPO = Path(__file__).parents[2]
ITERATIONS = {LOOP: 300, FLAGSCALE: 60, TWO_RANKS: 30, RESTARTED: 30}
MODULES = dict.fromkeys(ITERATIONS, "flagscale_perf.launch") | {LOOP: "tests.faults.loop"}  # that train


class Printed(NamedTuple):
    """An iteration line.

    Attributes:
        iteration: of it.
        at_s: when it was printed (monotonic seconds), less the time that the training had waited for a CPU.
    """

    iteration: int
    at_s: float


@dataclass(frozen=True)
class Start:
    """What is started.

    Attributes:
        command, environment: of the process; {DIRECTORY} in a word of it stands for its working directory,
            {PORT} for `port`.
        port: a free one.
    """

    command: list[str]
    environment: dict[str, str]
    port: int = field(default_factory=fs.free_port)

    def words(self, directory: Path) -> list[str]:
        """The command as it is typed."""
        return [
            word.replace("{DIRECTORY}", str(directory)).replace("{PORT}", str(self.port))
            for word in self.command
        ]


class Job:
    """A running training.

    Attributes:
        directory: its working directory.
        logs: the log directory it was given.
        shim: what fails for it.
        port: a free one, for its options.
        process: the one started.
        held: let go after the end of every process.
        output: what it has printed so far.
        printed: the iteration lines.
        ended_s: when the process had ended, on the same clock.
    """

    def __init__(self, directory: Path, shim: Shim, start: Start) -> None:
        self.directory, self.shim, self.port = directory, shim, start.port
        self.held = ExitStack()
        self.logs = directory / LOG_DIRECTORY
        self.output = ""
        self.printed: list[Printed] = []
        self.ended_s = 0.0
        self._family: set[psutil.Process] = set()
        self._start = start
        self._environment = shim.environment | {"PYTHONUNBUFFERED": "1"} | start.environment
        self._others: list[subprocess.Popen[bytes]] = []
        self._load = Load(self._training)
        self._held_s = 0.0
        self.process = fs.start(start.words(directory), directory, **self._environment)
        self._lines: SimpleQueue[tuple[str, float] | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        """Puts what it prints into the queue, whatever the test is doing meanwhile: when, must be true."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put((line, self._now_s() if fs.ITERATION.search(line) else 0.0))
        self._lines.put(None)

    def _now_s(self) -> float:
        """The time by the clock less what the training, and this process that watches it, waited for a CPU:
        so a busy machine makes nothing late, and a training that is held up is.
        """
        return time.monotonic() - self._load.waited_s() - self._held_s

    def go_on(self) -> None:
        """Lets a training that is held at the last iteration that was read (`hold`) go on; does nothing the
        second time.
        """
        if not self.printed:
            return
        gate = self.directory / f"{HOLD}{self.printed[-1].iteration}"
        if not gate.exists():
            return
        self._held_s += max(0.0, self._now_s() - self.printed[-1].at_s)
        while self.process.poll() is None:
            with contextlib.suppress(OSError):  # it has not come there yet
                os.close(os.open(gate, os.O_WRONLY | os.O_NONBLOCK))
                break
            time.sleep(0.005)
        gate.unlink()

    def _training(self) -> list[int]:
        """This process and those that train."""
        found = [os.getpid()]
        for pid in (self.process.pid, *(process.pid for process in list(self._family))):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if self._environment["FAULT_TRAINING"].encode() in words or not words[0]:  # a zombie has none
                    found.append(pid)
        return found

    def start_another(self) -> None:
        """The same once more in the same directory; nobody reads what it prints."""
        words, environment = self._start.words(self.directory), fs.environment(**self._environment)
        another = subprocess.Popen(
            words,
            cwd=self.directory,
            env=environment,
            start_new_session=True,
            stdin=DEVNULL,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        self._others.append(another)

    def read_until(self, iteration: int) -> None:
        """Takes in its output until that iteration is printed, or all of it. A training that was held before
        that goes on.
        """
        self.go_on()
        while (printed := self._lines.get()) is not None:
            line, at_s = printed
            self.output += line
            if found := fs.ITERATION.search(line):
                self.printed.append(Printed(int(found[1]), at_s))
                self._see_family()
                if self.printed[-1][0] == iteration:
                    return
                self.go_on()
        self._lines.put(None)  # for the next time

    def end(self) -> int:
        """Waits for the end of it and of everything it has started; returns the exit code."""
        with self._load.watched():
            self.read_until(0)
            code = self.process.wait(fs.DEADLINE_S)
            self.ended_s = self._now_s()
        for other in self._others:
            assert other.wait(fs.DEADLINE_S) == code
        fs.wait_until(lambda: not any(map(_is_alive, self._family)), "the end of every process of the job")
        return code

    def rank_0(self) -> psutil.Process:
        """The process that trains; it is older than its data loaders, which have its command line, too."""
        self._see_family()
        started = psutil.Process(self.process.pid)
        trains = [
            process
            for process in (started, *self._family)
            if _is(process, "flagscale_perf.launch", "RANK", "0")
        ]
        return min(trains, key=psutil.Process.create_time, default=started)

    def writer(self) -> psutil.Process:
        """Of rank 0, once it has a run file."""
        fs.wait_until(lambda: bool(self.run_files()), "a run file")
        fs.wait_until(lambda: self._find("flagscale_perf.perf_logger") is not None, "a writer process")
        found = self._find("flagscale_perf.perf_logger")
        assert found is not None
        return found

    def process_of(self, word: str, variable: str = "", value: str = "") -> psutil.Process:
        """The one with this word in its command line, and this in its environment, once it is there."""
        fs.wait_until(lambda: self._find(word, variable, value) is not None, f"a process of {word}")
        found = self._find(word, variable, value)
        assert found is not None
        return found

    def wait_for_step(self, iteration: int) -> None:
        """Until that step is in the run file."""
        fs.wait_until(
            lambda: any(f'"iteration":{iteration},' in path.read_text() for path in self.run_files()),
            "a step",
        )

    def run_files(self, directory: str = LOG_DIRECTORY) -> list[Path]:
        """Those in that directory of the job's."""
        return sorted(
            path for path in (self.directory / directory).glob("perf_records_*.jsonl") if path.is_file()
        )

    def _find(self, word: str, variable: str = "", value: str = "") -> psutil.Process | None:
        self._see_family()
        return next((process for process in self._family if _is(process, word, variable, value)), None)

    def _see_family(self) -> None:
        for process in (self.process, *self._others):
            with contextlib.suppress(psutil.NoSuchProcess):
                self._family |= set(psutil.Process(process.pid).children(recursive=True))

    def wait(self) -> None:
        """For the end of what was started, however it ended."""
        for each in (self.process, *self._others):
            each.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()

    def kill(self) -> None:
        """It and everything it has started."""
        for process in self._family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for each in (self.process, *self._others):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(each.pid, signal.SIGKILL)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _is(process: psutil.Process, word: str, variable: str, value: str) -> bool:
    """Whether it is alive, has the word in its command line, and the variable so in its environment."""
    with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
        return (
            _is_alive(process)
            and word in process.cmdline()
            and (not variable or process.environ().get(variable) == value)
        )
    return False


def hold(directory: Path, *iterations: int) -> dict[str, str]:
    """Has the training in that directory wait, once it has printed one of these iterations, until
    `Job.go_on`. Returns variables for its environment.
    """
    for iteration in iterations:
        os.mkfifo(directory / f"{HOLD}{iteration}")
    return {"FAULT_HOLD_AT": ",".join(map(str, iterations)), "FAULT_HOLD": str(directory / HOLD)}


@contextmanager
def job(directory: Path, shim: Shim, start: Start) -> Iterator[Job]:
    """A running job; nothing of it outlives the block, or twice the deadline."""
    running = Job(directory, shim, start)
    watchdog = threading.Timer(fs.DEADLINE_S, running.kill)
    watchdog.start()
    try:
        yield running
    finally:
        watchdog.cancel()
        watchdog.join()
        running.kill()
        running.wait()
        running.held.close()


def command_of(host: str, arguments: tuple[str, ...], monitored: bool) -> tuple[list[str], dict[str, str]]:
    """What is started, and with which environment; `arguments` follow the host's own."""
    command, environment = _command_of(host, arguments, monitored)
    return command, environment | {"FAULT_TRAINING": MODULES[host]}


def _command_of(host: str, arguments: tuple[str, ...], monitored: bool) -> tuple[list[str], dict[str, str]]:
    if host == LOOP:
        end, *options = arguments or ("return",)
        monitor = [f'perf_log_dir="{LOG_DIRECTORY}"', *options] if monitored else []
        return [sys.executable, "-m", MODULES[LOOP], str(ITERATIONS[host]), end, *monitor], {
            "PYTHONPATH": str(REPO)
        }
    monitor = ["--enable-perf-monitor", "--perf-log-dir", LOG_DIRECTORY] if monitored else []
    words = fs.launched(
        fs.train_gpt(), *fs.TINY, "--train-iters", str(ITERATIONS[host]), "--tensorboard-dir", TENSORBOARD
    )
    words += [*arguments, *monitor]
    path = {"PYTHONPATH": fs.environment()["PYTHONPATH"]}
    if host == RESTARTED:
        return fs.torchrun(1, "--max-restarts=1", *words), path
    if host == TWO_RANKS:
        return fs.torchrun(2, *words), path
    return [sys.executable, *words], path | fs.only_rank()
