"""A process that trains nothing and monitors it: it puts a step whenever it is told to, and ends as it is
told to.

Run as a program it obeys lines on stdin and answers each with a line on stdout; `Trainer` is the test's end
of that.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil

from flagscale_perf.spine.records import Record
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.records import StepRecord

REPO = Path(__file__).parents[2]
DEADLINE_S = 300.0  # only a hung one takes so long, however busy the machine
LAST_BYTES = 1 << 16


def wait_for(what: str, condition: Callable[[], Any]) -> Any:
    """The condition's first true value; fails after a generous time."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {DEADLINE_S} s for {what}"
        time.sleep(0.01)
    return value


class Trainer:
    """The test's end of one trainer."""

    def __init__(self, directory: Path, **options: Any) -> None:
        """`options` of PerfConfig; `device_uuid` is a fact, `env` added to ours."""
        environment = os.environ | options.pop("env", {})
        self.directory = directory
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.processes.trainer",
                json.dumps({"perf_log_dir": str(directory)} | options),
            ],
            cwd=REPO,
            env=environment,
            text=True,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.answer()

    def tell(self, *words: Any) -> str:
        """Sends a command; returns the answer."""
        self.send(*words)
        return self.answer()

    def send(self, *words: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the trainer has ended: {self.process.stderr.read() if self.process.stderr else ''}"
        return line.rstrip("\n")

    def writer(self) -> psutil.Process:
        """Its writer process, once that has claimed a session."""
        wait_for("a run file", lambda: list(self.directory.glob("perf_records_*.jsonl")))
        return wait_for("a writer", self._writer)

    def _writer(self) -> psutil.Process | None:
        for child in psutil.Process(self.process.pid).children():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):  # it has just ended
                if "flagscale_perf.perf_logger" in child.cmdline():
                    return child
        return None

    def end(self, *words: Any) -> tuple[int, str, str]:
        """Sends a last command; returns exit code, stdout and stderr from then on."""
        stdout, stderr = self.process.communicate(" ".join(map(str, words)) + "\n", timeout=DEADLINE_S)
        return self.process.returncode, stdout, stderr

    def leave(self) -> int:
        """Ends the commands; the trainer returns from its program. Returns its exit code."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.stdin = None
        return self.process.wait(DEADLINE_S)

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Sends the signal and waits for the end; returns the exit code."""
        self.process.send_signal(number)
        self.process.communicate(timeout=DEADLINE_S)
        return self.process.returncode


@contextmanager
def trainer(directory: Path, **options: Any) -> Iterator[Trainer]:
    """A running trainer; neither it nor its writer outlives the block."""
    started = Trainer(directory, **options)
    family = {psutil.Process(started.process.pid)}
    try:
        yield started
    finally:
        if started.process.poll() is None:
            family |= set(psutil.Process(started.process.pid).children(recursive=True))
            started.process.kill()
            started.process.communicate()
        for process in family:
            if process.is_running() and process.pid != started.process.pid:
                process.kill()


def text_of(directory: Path, pattern: str) -> str:
    """Of the one file of that name in the directory; "" before it is there."""
    return "".join(path.read_text() for path in directory.glob(pattern))


def written_last(directory: Path) -> str:
    """The end of the one run file; "" before it is there. To read all of a large one a hundred times a
    second, while waiting for a record, takes the processor from its writer.
    """
    for path in directory.glob("perf_records_*"):
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - LAST_BYTES))
            return file.read().decode(errors="replace")
    return ""


def ended_summary(directory: Path, session: str = "*") -> dict[str, Any]:
    """The summary of the one session in the directory, once it tells an end."""

    def read() -> dict[str, Any] | None:
        for path in directory.glob(f"perf_summary_{session}.json"):
            summary = json.loads(path.read_text())
            return summary if summary["session_info"]["end_reason"] != "running" else None
        return None

    return wait_for("the summary's end", read)


def records_in(directory: Path) -> list[Record]:
    """The records of the one session in the directory, every line a good one."""
    (path,) = directory.glob("perf_records_*.jsonl")
    return [decode(line) for line in path.read_bytes().splitlines()]


def steps_in(directory: Path) -> list[int]:
    """The iterations of its step records, in the order of the file."""
    return [record.iteration for record in records_in(directory) if isinstance(record, StepRecord)]


# --- the program


def main() -> None:
    from flagscale_perf.arguments import PerfConfig
    from flagscale_perf.perf_logger import PerfLogger
    from tests.fakes import make_facts

    options = json.loads(sys.argv[1])
    facts = make_facts(device_uuid=options.pop("device_uuid", None))
    config = PerfConfig(enable_perf_monitor=True, **options)
    logger = PerfLogger.start(config, facts, lambda line: print("say", line, flush=True))
    print("ready", flush=True)
    _obey(logger)


def _obey(logger: Any) -> None:
    from flagscale_perf.spine.clock import monotonic_ns
    from tests.fakes import MS, make_step

    iteration = 0
    end_ns = monotonic_ns()
    for line in sys.stdin:
        command, *words = line.split()
        if command == "put":  # so many steps; of so many milliseconds, if they are named
            took = {"iteration_ns": int(words[1]) * MS} if words[1:] else {}
            for iteration in range(iteration + 1, iteration + int(words[0]) + 1):  # noqa: B020 - goes on where it stopped
                logger.step(make_step(iteration, **took))
        elif command == "span":  # one step from the last one's end to now
            iteration, start_ns, end_ns = iteration + 1, end_ns, monotonic_ns()
            logger.step(make_step(iteration, start_ns=start_ns, iteration_ns=end_ns - start_ns))
        elif command == "run":
            while True:
                iteration += 1
                logger.step(make_step(iteration))
                print(iteration, flush=True)
                time.sleep(float(words[0]))
        elif command == "close":
            print(logger.close(" ".join(words[1:]), float(words[0])), flush=True)
        elif command == "fork":
            _fork(logger)
        else:
            _end(logger, command)
        print("done", command, flush=True)


def _fork(logger: Any) -> None:
    """A child that keeps every inherited descriptor open until it is killed, as a data loader's worker
    may.
    """
    from tests.fakes import make_step

    child = os.fork()
    if child == 0:
        logger.step(make_step(999))
        logger.close("killed")
        signal.pause()
        os._exit(0)
    print(child, flush=True)


def _end(logger: Any, command: str) -> None:
    """Ends as hooks do: the logger is told in a `finally`, the exit is the training's own."""
    reasons = {
        "return": "completed",
        "exit": "exit 3",
        "raise": "exception ValueError",
        "wait": "interrupted",
    }
    try:
        if command == "exit":
            sys.exit(3)
        if command == "raise":
            raise ValueError("training failed")
        if command == "wait":
            print("waiting", flush=True)
            signal.pause()
        if command == "return":
            sys.exit(0)
    finally:
        print(logger.close(reasons[command], DEADLINE_S), flush=True)


if __name__ == "__main__":
    main()
