"""Two machines on one: processes with a network, hostname, process table, start and monotonic clock of their
own each, joined by a cable.

with two_machines(tmp_path) as (one, other):
    process = subprocess.Popen(one.command("python", "train.py"), cwd=..., ...)
    other.unplug()  # its network is gone, its processes go on
    other.die()  # as when its power goes

Files are the same on both, save what `Machine.own_directory` makes different. The time of day is the same,
too: there is no namespace for it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.members import wait_for

CABLE = "eth0"
AHEAD_S = 1_000_000  # of the second machine's monotonic clock
KINDS = ("--net", "--uts", "--pid", "--mount", "--ipc", "--time")
READY = "ready"


@dataclass(frozen=True)
class Machine:
    """One of them.

    Attributes:
        name: its hostname.
        address: in the network of both.
        holder: which ends with all of the machine.
        first: pid of its first process, as seen from outside.
    """

    name: str
    address: str
    holder: subprocess.Popen[str]
    first: int

    def command(self, *words: object) -> list[str]:
        """What runs there, in the directory where it is started."""
        enter = f'exec nsenter --target={self.first} {" ".join(KINDS)} --wdns="$PWD" "$@"'
        return ["sh", "-c", enter, "sh", *map(str, words)]

    def end(self, process: subprocess.Popen[str]) -> None:
        """SIGTERM to what was started by `command` here."""
        os.kill(_child(process.pid), signal.SIGTERM)

    def run(self, *words: object) -> str:
        """Waits for its end; what it printed."""
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def wait_for_end(self, directory: Path, instrument: str) -> None:
        """Until the writer of the instrument's only run file there has ended it."""
        files = f'grep -ls \'"instrument":"{instrument}"\' {directory}/perf_records_*.jsonl'
        whole = f'{files} | xargs -r grep -c \'"kind":"end"\' || true'
        wait_for(lambda: self.run("sh", "-c", whole) == "1\n")

    def own_directory(self, path: Path) -> None:
        """From now on, what lies there on this machine is seen by no other one."""
        self.run("mount", "-t", "tmpfs", "tmpfs", path)

    def unplug(self) -> None:
        """The cable: what is sent is lost."""
        self.run("ip", "link", "set", CABLE, "down")

    def die(self) -> None:
        """All at once."""
        self.holder.kill()
        self.holder.wait()
        if self.holder.stdout is not None:
            self.holder.stdout.close()


@contextlib.contextmanager
def two_machines(directory: Path) -> Iterator[tuple[Machine, Machine]]:
    """Both, called node0 and node1; nothing of them outlives the block. Skips the test where they cannot be
    made.
    """
    hosts = directory / "hosts"
    hosts.write_text("127.0.0.1 localhost\n10.0.0.1 node0\n10.0.0.2 node1\n")
    made: list[Machine] = []
    try:
        one = _machine(directory, 0)
        made.append(one)
        other = _machine(directory, 1)
        made.append(other)
        _join(one, other)
        yield one, other
    finally:
        for each in made:
            each.die()


def container() -> list[str]:
    """The beginning of a command whose processes see only each other and share everything else with the
    machine. It does not end by itself. Skips the test where that is not allowed.
    """
    return [*_apart("--pid", "--mount-proc"), "sh", "-c", '"$@"; sleep infinity', "sh"]


def other_clock() -> list[str]:
    """The beginning of a command whose monotonic clock is ahead. Skips the test where that is not allowed."""
    return _apart("--time", f"--monotonic={AHEAD_S}")


def _apart(*namespaces: str) -> list[str]:
    command = ["unshare", *namespaces, "--fork", "--kill-child"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        _skip(tried.stderr)
    return command


def _machine(directory: Path, number: int) -> Machine:
    boot = directory / f"boot_id{number}"
    boot.write_text(f"{uuid.uuid4()}\n")
    begin = (
        f"hostname node{number} && mount -t tmpfs tmpfs /dev/shm && mount --bind {directory}/hosts /etc/hosts"
        f" && mount --bind {boot} /proc/sys/kernel/random/boot_id && ip link set lo up && echo {READY}"
        " && exec sleep infinity"
    )
    ahead = [f"--{clock}={number * AHEAD_S}" for clock in ("monotonic", "boottime")]
    holder = subprocess.Popen(
        ["unshare", *KINDS, *ahead, "--fork", "--kill-child", "--mount-proc", "sh", "-c", begin],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert holder.stdout is not None
    said = holder.stdout.readline()
    if said.strip() != READY:
        holder.kill()
        _skip(said + holder.communicate()[0])
    return Machine(f"node{number}", f"10.0.0.{number + 1}", holder, _child(holder.pid))


def _child(pid: int) -> int:
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _join(one: Machine, other: Machine) -> None:
    words = ["ip", "link", "add", CABLE, "netns", str(one.first), "type", "veth", "peer", "name", CABLE]
    laid = subprocess.run([*words, "netns", str(other.first)], capture_output=True, text=True, check=False)
    if laid.returncode:
        _skip(laid.stderr)
    for each in (one, other):
        each.run("ip", "address", "add", f"{each.address}/24", "dev", CABLE)
        each.run("ip", "link", "set", CABLE, "up")


def _skip(why: str) -> None:
    pytest.skip(f"needs the right to make namespaces: {' '.join(why.split())}")
