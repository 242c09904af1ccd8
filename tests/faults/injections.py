"""How each fault is brought about, from outside the training's own code."""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from tests import fake_nvml
from tests.faults.job import LOG_DIRECTORY, Job
from tests.faults.shim import Shim
from tests.members import wait_for

Prepare = Callable[[Path, Shim], dict[str, str]]
Act = Callable[[Job], None]
VICTIM = "victim"
MODULES = "PYTHONPATH"  # what an injection gives for it goes before the training's own


def fails(error: int = 0, **how: int) -> Prepare:
    """From the start on."""

    def prepare(directory: Path, shim: Shim) -> dict[str, str]:
        shim.set(error=error, **how)
        return {}

    return prepare


def is_met(running: Job) -> None:
    """Nothing more than what fails from the start on: until a file call has met it."""
    wait_for(lambda: running.shim.get("calls") > 0)


def fails_for_a_while(until: int, **how: int) -> Act:
    """From now until that iteration, and until a file call has met it."""

    @lets_go_on(until)
    def act(running: Job) -> None:
        running.shim.set(**how)
        before = running.shim.get("calls")
        running.read_until(until)
        wait_for(lambda: running.shim.get("calls") > before)
        running.shim.heal()

    return act


def fails_now(**how: int) -> Act:
    """From now on, once a step is in the run file."""

    def act(running: Job) -> None:
        running.wait_for_step(1)
        running.shim.set(**how)

    return act


def python_file(name: str, text: str) -> Prepare:
    """A module that is imported before others of its name."""

    def prepare(directory: Path, shim: Shim) -> dict[str, str]:
        path = directory / "modules" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
        return {MODULES: str(directory / "modules")}

    return prepare


SMALL_LOG_PARTS = """
from flagscale_perf.sinks.text import MetricsSink

MetricsSink.__init__.__defaults__ = (MAX_BYTES,)
"""


def small_log_parts(max_bytes: int, error: int = 0, every: int = 0) -> Prepare:
    """The text log begins a new part after so many bytes instead of 32 MiB; file calls fail as given."""
    text = SMALL_LOG_PARTS.replace("MAX_BYTES", str(max_bytes))

    def prepare(directory: Path, shim: Shim) -> dict[str, str]:
        fails(error, every=every)(directory, shim)
        return python_file("sitecustomize.py", text)(directory, shim)

    return prepare


def log_has_parts(least: int) -> Act:
    """The text log was rotated, into at least so many files."""

    def check(running: Job) -> None:
        parts = sorted(path.name for path in running.logs.glob("perf_metrics_*.log"))
        assert len(parts) >= least, parts

    return check


def sessions_are_restarts(running: Job) -> None:
    """The two sessions know which start of the job they are."""
    headers = [json.loads(path.read_text().splitlines()[0]) for path in running.run_files()]
    assert [header["facts"]["restart_count"] for header in headers] == [0, 1]


IN_A_STEP = """
import importlib.abc, os, sys

class Planted(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "flagscale.train.train":
            import torch
            calls = [0]
            def step(self, *args, _original=torch.optim.AdamW.step, **kwargs):
                calls[0] += 1
                if calls[0] == 20:
                    print("SEEN", flush=True)
                    BODY
                return _original(self, *args, **kwargs)
            torch.optim.AdamW.step = step
        return None

sys.meta_path.insert(0, Planted())
"""
SEEN = "planted in step 20"
UNTIL = "until"  # attribute of an act
# A sitecustomize.py: FlagScale waits behind the iterations at which it is held, as the loop does by itself.
HOLDING = """
import builtins, os, re
say, held = builtins.print, os.environ.get("FAULT_HOLD_AT", "").split(",")
def print(*texts, **options):
    say(*texts, **options)
    found = re.search(r"iteration +(\\d+)/ *\\d+ \\|", str(texts[0]) if texts else "")
    if found and found[1] in held:
        with open(os.environ["FAULT_HOLD"] + found[1]) as go:
            go.read()
builtins.print = print
"""


def in_a_step(body: str) -> str:
    """A sitecustomize.py: FlagScale's optimizer runs this statement, too, in its 20th step. `self` is the
    optimizer.
    """
    return IN_A_STEP.replace("SEEN", SEEN).replace("BODY", body)


def lets_go_on(until: int) -> Callable[[Act], Act]:
    """Marks what lets the training go on up to that iteration and does something there."""

    def mark(act: Act) -> Act:
        setattr(act, UNTIL, until)
        return act

    return mark


def planted(directory: Path, text: str) -> dict[str, str]:
    """The sitecustomize.py, if there is one."""
    if not text:
        return {}
    path = directory / "planted" / "sitecustomize.py"
    path.parent.mkdir()
    path.write_text(text)
    return {MODULES: str(path.parent)}


def driver(mode: str) -> Prepare:
    """NVIDIA's library, with that wrong."""

    def prepare(directory: Path, shim: Shim) -> dict[str, str]:
        (directory / "driver").mkdir()
        return fake_nvml.environment(fake_nvml.build(directory / "driver"), mode)

    return prepare


def planted_link(directory: Path, shim: Shim) -> dict[str, str]:
    """The live log is a link to somebody's file."""
    (directory / LOG_DIRECTORY).mkdir()
    (directory / VICTIM).write_text("precious")
    (directory / LOG_DIRECTORY / "perf_realtime.log").symlink_to(directory / VICTIM)
    return {}


def remove_logs(running: Job) -> None:
    """With everything in it, once something is."""
    running.wait_for_step(running.printed[-1][0] - 1)
    while running.logs.exists():
        subprocess.run(["rm", "-rf", running.logs], check=False)


def replace_logs_by_file(running: Job) -> None:
    """The directory is moved away, a file stands in its place."""
    running.wait_for_step(1)
    running.logs.rename(running.directory / "moved")
    running.logs.write_text("precious")


def replace_run_file_by_link(running: Job) -> None:
    """The run file is moved away; in its place is a link to somebody's file."""
    running.wait_for_step(1)
    (running.directory / VICTIM).write_text("precious")
    (path,) = running.logs.glob("perf_records_*")
    moved = running.directory / "moved"
    moved.mkdir()
    path.rename(moved / path.name)
    path.symlink_to(running.directory / VICTIM)


def victim_is_untouched(running: Job) -> bool:
    """Nothing was written through a link."""
    victim = running.directory / VICTIM
    return not victim.exists() or victim.read_text() == "precious"


def kill_writer(running: Job) -> None:
    """SIGKILL."""
    running.writer().kill()


def stop_writer_for_a_while(until: int) -> Act:
    """SIGSTOP, and SIGCONT at that iteration."""

    @lets_go_on(until)
    def act(running: Job) -> None:
        writer = running.writer()
        writer.suspend()
        running.read_until(until)
        writer.resume()

    return act


def stop_writer_at_the_end(running: Job) -> None:
    """SIGSTOP; it is continued only after the training has ended."""
    writer = running.writer()
    writer.suspend()
    running.read_until(0)
    running.process.wait()
    writer.resume()


def take_descriptors_for_a_while(until: int) -> Act:
    """The writer may open no further file, but has to; from that iteration on it may."""

    @lets_go_on(until)
    def act(running: Job) -> None:
        running.wait_for_step(1)
        writer = running.writer().pid
        limits = resource.prlimit(writer, resource.RLIMIT_NOFILE)
        resource.prlimit(writer, resource.RLIMIT_NOFILE, (3, limits[1]))
        for path in running.logs.glob("perf_metrics*"):
            path.unlink()
        running.read_until(until)
        resource.prlimit(writer, resource.RLIMIT_NOFILE, limits)

    return act


def take_memory(running: Job) -> None:
    """The training may have no more memory than it has."""
    process = running.rank_0()
    have = process.memory_info().vms + (64 << 20)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (have, have))


def stop(process: psutil.Process, seconds: float) -> None:
    """SIGSTOP, and after so long SIGCONT."""
    process.suspend()
    time.sleep(seconds)
    assert process.status() == psutil.STATUS_STOPPED
    process.resume()


def stop_training(seconds: float) -> Act:
    """SIGSTOP, as a debugger does, and SIGCONT."""

    def act(running: Job) -> None:
        process = running.rank_0()
        running.go_on()
        stop(process, seconds)

    return act


def send(number: int) -> Act:
    """A signal to the process that was started (the agent where there is one)."""
    return lambda running: os.kill(running.process.pid, number)


def send_at_random(number: int, latest: int) -> Act:
    """The signal at a moment nobody chose: after a random iteration, and a random part of the next."""

    def act(running: Job) -> None:
        chance = random.Random()
        running.read_until(chance.randint(1, latest))
        time.sleep(chance.uniform(0, 0.01))
        os.kill(running.process.pid, number)

    return act


def storm(running: Job) -> None:
    """200 signals that mean nothing to a Python program, to the training and its writer."""
    processes = [running.rank_0(), running.writer()]
    for number in (signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG, signal.SIGCONT) * 25:
        for process in processes:
            process.send_signal(number)
        time.sleep(0.001)


def wall_clock(seconds: int) -> Act:
    """It is set."""
    return fails_now(shift_s=seconds)
