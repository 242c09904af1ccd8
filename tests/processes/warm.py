"""Warm interpreters: a server that has imported what a training imports of others, and forks for each
process that a test starts. torch and transformers cost a cold process four seconds, most of a short training.

Of the host and of this package nothing is imported before the fork: hooks and patches find the same modules
as in a cold process. What would have to be there before Python starts (an allocator, a preloaded library,
another number of threads) is started cold. Torchrun's own ways (restarts, several nodes) are tried cold, too.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import gc
import importlib
import json
import os
import random
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SOCKET = "WARM_INTERPRETERS"  # where the server listens, in the environment of what asks it
THREADS = "1"  # of OpenMP, which are counted when torch is imported
IMPORTED = (
    "numpy.core",
    "torch",
    "torch._dynamo",
    "torch._inductor.compiler_bisector",
    "torch.distributed._tensor",
    "torch.distributed.checkpoint",
    "torch.distributed.run",
    "torch.profiler",
    "torch.utils.cpp_extension",
    "torch.utils.data",
    "torch.utils.tensorboard",
    "transformers.models.auto.tokenization_auto",
    "einops",
    "omegaconf",
    "psutil",
    "pydantic.json_schema",
    "pydantic.main",
    "regex",
    "requests",
    "sentencepiece",
    "tensordict",
    "tiktoken",
    "tokenizers",
    "yaml",
)
# What acts before the first line of Python does.
BEFORE_PYTHON = ("LD_", "MALLOC_", "GLIBC_", "KMP_", "MKL_", "PYTHON")
HARMLESS = ("PYTHON", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE", "LD_LIBRARY_PATH")

_LONGEST_REQUEST = 1 << 20


@functools.cache
def address() -> str:
    """Where the server of this process listens; all processes of `make test` have the same one."""
    session = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if session is None:
        return start_server(os.getpid())
    home = Path(tempfile.gettempdir(), f"warm-{session}")
    home.mkdir(mode=0o700, exist_ok=True)
    path = home / "socket"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            start_server(os.getppid(), home)
    return str(path)


def start_server(owner: int, home: Path | None = None, within: Sequence[str] = ()) -> str:
    """Starts a server, under the command `within`. It ends with the process `owner`, and removes `home` then.
    Returns where it listens.
    """
    path = str(Path(home or tempfile.mkdtemp(prefix="warm-"), "socket"))
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [*within, sys.executable, __file__, path, str(owner)],
        env=environment | {"OMP_NUM_THREADS": THREADS},
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    assert server.stdout is not None
    with server.stdout as answer:
        assert answer.readline() == b"ready\n", "the server of warm interpreters did not start"
    server.wait()  # it goes on as nobody's child, so that no test leaves one behind
    return path


def is_possible(environment: Mapping[str, str]) -> bool:
    """Whether a process with this environment can be a fork of the server."""
    early = [name for name in environment if name.startswith(BEFORE_PYTHON) and name not in HARMLESS]
    return SOCKET in environment and environment.get("OMP_NUM_THREADS") == THREADS and not early


class Process:
    """`python WORDS...`, started here by the server, with this process's stdin, stdout and stderr.

    It is in a session of its own, and killed when this process ends.

    Attributes:
        pid: its process id.
    """

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        """Starts it."""
        request = json.dumps({"words": [*words], "environment": {**environment}, "directory": os.getcwd()})
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LONGEST_REQUEST)
        self._server.connect(environment[SOCKET])
        socket.send_fds(self._server, [request.encode()], [0, 1, 2])
        self.pid = int(self._server.recv(16))

    def fileno(self) -> int:
        """Readable once it has ended."""
        return self._server.fileno()

    def wait(self) -> int:
        """Its exit code, as `subprocess` has it."""
        with self._server:
            return int(self._server.recv(16))


def _serve(path: str, owner: int) -> dict[str, Any]:
    """Forks for each request until the process `owner` has ended.

    Returns in each forked process: what was asked for.
    """
    gone = os.pidfd_open(owner)
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # what is not there is imported by no training either
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # a collection in a fork would write to every page that they share
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()
    if os.fork():
        print("ready", flush=True)
        os._exit(0)
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that look after a process
    while True:
        ready, _, _ = select.select([listener, gone], [], [])
        if gone in ready:
            shutil.rmtree(Path(path).parent, ignore_errors=True)
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            if os.fork() == 0:
                listener.close()
                os.close(gone)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                return _look_after(connection)


def _look_after(connection: socket.socket) -> dict[str, Any]:
    """Forks the process and tells who asked of its end, or ends it with who asked. Returns in the process."""
    content, files, _, _ = socket.recv_fds(connection, _LONGEST_REQUEST, 3)
    pid = os.fork()
    if pid == 0:
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        request: dict[str, Any] = json.loads(content)
        return request
    for file in (0, 1, 2, *files):
        os.close(file)
    with contextlib.suppress(BrokenPipeError):
        connection.send(b"%d" % pid)
        ended = os.pidfd_open(pid)
        if ended not in select.select([ended, connection], [], [])[0]:
            os.kill(pid, signal.SIGKILL)
        connection.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _become(request: Mapping[str, Any]) -> None:
    """Runs `python WORDS...` as a cold interpreter would."""
    os.setsid()
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    random.seed()  # forks would draw the same ports and names
    sys.stdout.reconfigure(line_buffering=True, write_through=True)  # type: ignore[union-attr]
    given = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    first, *rest = words = request["words"]
    if first == "-m":
        sys.path[:1] = [os.getcwd(), *given]
        sys.argv[:] = words[1:]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[:1] = [str(Path(first).resolve().parent), *given]
        sys.argv[:] = words
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    _become(_serve(sys.argv[1], int(sys.argv[2])))
