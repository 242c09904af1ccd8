"""The programs of examples/tee_gpu in processes of their own, forked from a warm interpreter (warm.py)."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import Completed
from tests.processes import flagscale as fs
from tests.processes import warm

HERE = Path(__file__).parents[2] / "examples" / "tee_gpu"
Run = Callable[..., Completed]


def start(program: str, *words: object, cwd: Path = HERE, **environment: str) -> subprocess.Popen[str]:
    """`python PROGRAM WORDS...`, with pipes for stdout and stderr."""
    given = os.environ | {"OMP_NUM_THREADS": warm.THREADS, warm.SOCKET: warm.address()} | environment
    return subprocess.Popen(
        fs.workers(1, HERE / program, *map(str, words)),
        cwd=cwd,
        env=given,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(program: str, *words: object, cwd: Path, **environment: str) -> Completed:
    """The same to its end."""
    with start(program, *words, cwd=cwd, **environment) as process:
        stdout, stderr = process.communicate()
    return subprocess.CompletedProcess([program], process.returncode, stdout, stderr)


def with_warm_children(program: Path, directory: Path) -> str:
    """A script that is the program, but for the Python that it starts others with: theirs are warm, too."""
    python, script = directory / "python", directory / program.name
    python.write_text(f'#!/bin/sh\nexec {shlex.join(fs.workers(1))} "$@"\n')
    python.chmod(0o755)
    script.write_text(
        f"import runpy, sys\nsys.executable = {str(python)!r}\nsys.path[0] = {str(program.parent)!r}\n"
        f"runpy.run_path({str(program)!r}, run_name='__main__')\n"
    )
    return str(script)


@contextmanager
def server(endpoint: str, *words: str, **environment: str) -> Iterator[list[str]]:
    """A server that listens; the lines it had printed by then."""
    with start("server_optimized.py", "--ipc-path", endpoint, *words, **environment) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().rstrip() for _ in range(2)]
        try:
            yield lines
        finally:
            process.terminate()
            _, said = process.communicate()
    assert process.returncode == 0, said
