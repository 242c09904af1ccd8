"""Command lines of Python programs, typed one after another in one process: what is imported is so once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.conftest import RunPython

PROCESS = """
import contextlib, io, json, os, runpy, sys
found = []
for program, *words in json.loads(sys.argv[1]):
    sys.argv, code = [program, *words], 0
    out, err = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            runpy.run_path(program, run_name="__main__")
        except SystemExit as ended:
            code = ended.code or 0
    found.append([code, *(each.seek(0) or each.read() for each in (out, err)), os.listdir()])
print(json.dumps(found))
"""


class Typed(NamedTuple):
    """What came of a line.

    Attributes:
        files: that were in the working directory afterwards.
    """

    code: int
    stdout: str
    stderr: str
    files: list[str]


def typed(run_python: RunPython, lines: Iterable[Sequence[str | Path]]) -> list[Typed]:
    """Each line begins with the program's path. An exception that leaves a program fails the test."""
    done = run_python("-c", PROCESS, json.dumps([[str(word) for word in line] for line in lines]))
    assert done.returncode == 0, done.stderr
    return [Typed(*each) for each in json.loads(done.stdout)]
