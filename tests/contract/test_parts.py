"""Every marker of tests belongs to a part of .ci/parts.toml; each part says how it ended, and no failure is
lost.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import skips
from tests.conftest import REPO


def load() -> Any:
    spec = importlib.util.spec_from_file_location("parts", REPO / ".ci" / "parts.py")
    assert spec is not None and spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for it there
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[spec.name]
    return module


parts = load()
PARTS = parts.read_parts(REPO / ".ci" / "parts.toml")


# The table is complete.


def test_every_command_of_the_table_is_there() -> None:
    makefile = (REPO / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][\w-]*):", makefile, re.MULTILINE))
    for part in PARTS:
        words = part.run.split()
        scripts = [word for word in words if word.startswith(".ci/")]
        assert all((REPO / script).stat().st_mode & 0o111 for script in scripts), part.name
        called = [words[n + 1] for n, word in enumerate(words) if word == "make"]
        called += [word for word in words if word.startswith("venv")]
        assert set(called) <= targets, part.name
        assert scripts or called, part.name
        assert all((REPO / word).exists() for word in words if word.startswith("requirements/")), part.name


def test_every_marker_of_a_test_that_make_test_leaves_out_is_some_part_s() -> None:
    options = tomllib.loads((REPO / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"][
        "ini_options"
    ]
    markers = {row.partition(":")[0] for row in options["markers"]}
    left_out = set(re.findall(r"not (\w+)", options["addopts"]))
    skipped = {"trace", "vllm"}  # where their packages are not
    run_by_make_test = {"host"}
    hardware = {"gpu"}
    assert markers == left_out | skipped | run_by_make_test | hardware
    assert {marker for part in PARTS for marker in part.markers} == left_out | skipped
    assert any(row.tests.startswith("tests/gpu/") for row in skips.ACCEPTED)


# What happens to a part.

TABLE = """\
[[part]]
name = "tools"
run = "echo 'SKIPPED: no tools here'; exit 77"
variable = "CI_WITHOUT_TOOLS"
[[part]]
name = "fails"
run = "echo '== 2 failed, 3 passed, 1 skipped in 0.10s =='; echo '== 1 passed, 1 error in 0.2s =='; exit 2"
[[part]]
name = "passes"
run = "echo CI=$CI tools=$CI_WITHOUT_TOOLS ARGS=$ARGS; echo '=== 1200 passed in 61.00s (0:01:01) ==='"
[[part]]
name = "last"
run = "true"
[[part]]
name = "long"
run = "exit 3"
because = "it takes hours"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with that table."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/parts.toml").write_text(TABLE)
    (tmp_path / ".ci/parts.py").write_text((REPO / ".ci/parts.py").read_text(encoding="utf-8"))
    return tmp_path


def called(run_python, place: Path, *arguments: str) -> tuple[int, str, str]:
    """Exit status, what is printed before the end, and the end, with every time of a part as 0:00."""
    variables = {"ARGS": "-k ring", "CI": "", "CI_WITHOUT_TOOLS": ""}
    done = run_python(place / ".ci/parts.py", *arguments, env=variables, cwd=place)
    shown, _, end = done.stdout.partition("\n--- ended\n")
    return done.returncode, shown, re.sub(r"(?<=  )\d:\d\d(?=  |$)", "0:00", end, flags=re.MULTILINE)


def results(end: str) -> dict[str, str]:
    """By part."""
    rows = (re.split(r"  +", line) for line in end.partition("part")[2].splitlines()[1:])
    return {name: rest[0] for name, _, *rest in rows if rest}


END = """\
== 2 failed, 3 passed, 1 skipped in 0.10s ==
== 1 passed, 1 error in 0.2s ==
=== 1200 passed in 61.00s (0:01:01) ===

part     time  result   counts
tools    0:00  skipped  no tools here
fails    0:00  FAILED   2 failed, 1 error, 4 passed, 1 skipped
passes   0:00  ok       1,200 passed
last     0:00  ok
long     0:00  not run  make test-all runs it: it takes hours
all      0:00
"""


def test_every_part_runs_and_a_failure_fails(run_python, place: Path) -> None:
    code, shown, end = called(run_python, place)
    assert (code, end) == (1, END)
    assert "CI=true tools=1 ARGS=\n" in shown  # what make test-all was given is not the parts'


def test_all_of_them(run_python, place: Path) -> None:
    assert results(called(run_python, place, "--all")[2])["long"] == "FAILED"


def test_some_of_them(run_python, place: Path) -> None:
    code, _, end = called(run_python, place, "passes")
    assert (code, results(end)) == (0, {"passes": "ok"})
    done = run_python(place / ".ci/parts.py", "pases", cwd=place)
    assert (done.returncode, "no part pases: there are tools, fails," in done.stderr) == (2, True)


def test_a_process_that_a_part_leaves_running_holds_nothing_up(run_python, place: Path) -> None:
    script, table = place / ".ci/parts.py", place / ".ci/parts.toml"
    script.write_text(script.read_text().replace("LAST_WORDS_S = 10", "LAST_WORDS_S = 0.5"))
    table.write_text(TABLE.replace("true", "tail -f /dev/null & echo $! > left; echo done"))
    code, shown, _ = called(run_python, place, "last")
    subprocess.run(["kill", (place / "left").read_text().strip()], check=True)
    assert (code, "done\n" in shown) == (0, True)


FAILING = """\
[[part]]
name = "tests"
run = "seq -f 'FAILED tests/test_a.py::test_%g - no' {failing}; echo '= {failing} failed in 1s ='; exit 2"
again = "echo '== 1 passed in 0.1s =='; touch again; exit {code}"
"""


@pytest.mark.parametrize(
    ("failing", "code", "result"),
    [
        (2, 0, "ok"),
        (2, 1, "FAILED"),  # by themselves, too
        (parts.FEW + 1, 0, "FAILED"),  # so many are no busy machine's
        (0, 0, "FAILED"),  # not because of a test
    ],
)
def test_few_failing_tests_run_once_more(
    run_python, place: Path, failing: int, code: int, result: str
) -> None:
    (place / ".ci/parts.toml").write_text(FAILING.format(failing=failing, code=code))
    status, _, end = called(run_python, place)
    assert (status, results(end)["tests"]) == (int(result != "ok"), result)
    assert (place / "again").exists() == (0 < failing <= parts.FEW)
    named = "by themselves: tests/test_a.py::test_1, tests/test_a.py::test_2"
    assert (named in " ".join(end.split())) == (result == "ok")
