"""Every file is guarded by a part of .ci/parts.toml, every test belongs to one, and a part whose files
changed runs; each says how it ended, and no failure is lost.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
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
CHANGED = [part for part in PARTS if part.when == parts.CHANGED]


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


def test_every_file_is_guarded_and_no_row_guards_nothing() -> None:
    everything = set(parts.guarded(REPO, ("**",)))
    covered = {name for part in PARTS for name in parts.guarded(REPO, part.guards) if part.guards}
    assert everything - covered == set()
    for part in PARTS:
        assert [row for row in part.guards if not parts.guarded(REPO, (row,))] == [], part.name


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


@pytest.mark.parametrize("marker", sorted({marker for part in CHANGED for marker in part.markers}))
def test_what_has_a_part_s_marker_is_guarded_by_it(marker: str) -> None:
    """A change of the test itself runs the test."""
    guards = [guard for part in CHANGED if marker in part.markers for guard in part.guards]
    names = set(parts.guarded(REPO, tuple(guards)))
    marked = {
        name
        for name in parts.guarded(REPO, ("tests/**/test_*.py",))
        if f"mark.{marker}" in (REPO / name).read_text(encoding="utf-8")
    }
    assert marked - names == set()


@pytest.mark.parametrize("part", CHANGED, ids=lambda part: part.name)
def test_what_a_guarded_room_imports_is_guarded(part) -> None:
    """At the top of its modules; else a change below the room would not run the part."""
    names = set(parts.guarded(REPO, part.guards))
    rooms = [guard for guard in part.guards if re.fullmatch(r"flagscale_perf/.+/\*\*?(\.py)?", guard)]
    modules = [name for name in parts.guarded(REPO, tuple(rooms)) if name.endswith(".py")]
    missing = {
        f"{name} imports {imported}"
        for name in modules
        for imported in imports_of(REPO / name)
        if imported not in names
    }
    assert modules
    assert missing == set()


def imports_of(path: Path) -> set[str]:
    """Files of this package that a module imports at its top."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("flagscale_perf."):
            for name in node.names:
                found |= {file for file in files_of(f"{node.module}.{name.name}", node.module)}
    return found


def files_of(*modules: str) -> list[str]:
    """The first of them that is a file."""
    for module in modules:
        for file in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
            if (REPO / file).is_file():
                return [file]
    return []


def test_what_does_not_run_in_continuous_integration_says_why() -> None:
    for part in PARTS:
        assert part.when in (parts.ALWAYS, parts.CHANGED, parts.RELEASE), part.name
        assert bool(part.because) == (part.when == parts.RELEASE), part.name
        assert bool(part.guards) or part.when != parts.CHANGED, part.name


# What happens to a part.

TABLE = """\
[[part]]
name = "tools"
run = "echo 'SKIPPED: no tools here'; exit 77"
when = "always"
variable = "CI_WITHOUT_TOOLS"
[[part]]
name = "fails"
run = "echo '== 2 failed, 3 passed, 1 skipped in 0.10s =='; echo '== 1 passed, 1 error in 0.2s =='; exit 2"
when = "always"
[[part]]
name = "passes"
run = "echo CI=$CI tools=$CI_WITHOUT_TOOLS ARGS=$ARGS; echo '=== 1200 passed in 61.00s (0:01:01) ==='"
when = "always"
[[part]]
name = "guards"
run = "cat room/*.py"
when = "changed"
guards = ["room/**"]
[[part]]
name = "long"
run = "exit 3"
when = "release"
because = "it takes hours"
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A repository with that table and one room."""
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci/parts.toml").write_text(TABLE)
    (tmp_path / ".ci/parts.py").write_text((REPO / ".ci/parts.py").read_text(encoding="utf-8"))
    (tmp_path / "room").mkdir()
    (tmp_path / "room/one.py").write_text("first\n")
    (tmp_path / ".gitignore").write_text("__pycache__/\n")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
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
guards   0:00  ok
long     0:00  not run  make test-all runs it: it takes hours
all      0:00
"""


def test_every_part_runs_and_a_failure_fails(run_python, place: Path) -> None:
    code, shown, end = called(run_python, place)
    assert (code, end) == (1, END)
    assert "CI=true tools=1 ARGS=\n" in shown  # what make test-all was given is not the parts'


def test_a_part_runs_again_where_what_it_guards_changed(run_python, place: Path) -> None:
    def runs() -> bool:
        return results(called(run_python, place)[2])["guards"] == "ok"

    assert runs()
    assert not runs()
    (place / "room/two.py").write_text("new\n")
    assert runs()
    (place / "room/one.py").write_text("changed\n")
    assert runs()
    (place / "room/one.py").rename(place / "room/three.py")
    assert runs()
    (place / "elsewhere.py").write_text("new\n")
    assert not runs()
    (place / ".ci/passed.toml").unlink()
    assert runs()


def test_without_git_every_part_that_guards_something_runs(run_python, place: Path) -> None:
    called(run_python, place)
    shutil.rmtree(place / ".git")
    assert results(called(run_python, place)[2])["guards"] == "ok"


def test_a_part_that_fails_is_not_noted(run_python, place: Path) -> None:
    table = place / ".ci/parts.toml"
    table.write_text(TABLE.replace("cat room/*.py", "exit 77"))  # without a reason that is a failure, too
    for _ in range(2):
        code, _, end = called(run_python, place)
        assert (code, results(end)["guards"]) == (1, "FAILED")
    assert not (place / ".ci/passed.toml").exists()


def test_files_that_change_while_a_part_runs_are_not_noted(run_python, place: Path) -> None:
    table = place / ".ci/parts.toml"
    table.write_text(TABLE.replace("cat room/*.py", "echo more >> room/one.py"))
    assert called(run_python, place, "guards")[0] == 0
    assert not (place / ".ci/passed.toml").exists()


def test_all_of_them(run_python, place: Path) -> None:
    called(run_python, place)
    found = results(called(run_python, place, "--all")[2])
    assert (found["guards"], found["long"]) == ("ok", "FAILED")


def test_some_of_them(run_python, place: Path) -> None:
    code, _, end = called(run_python, place, "passes")
    assert (code, results(end)) == (0, {"passes": "ok"})
    done = run_python(place / ".ci/parts.py", "pases", cwd=place)
    assert (done.returncode, "no part pases: there are tools, fails," in done.stderr) == (2, True)


def test_a_process_that_a_part_leaves_running_holds_nothing_up(run_python, place: Path) -> None:
    script, table = place / ".ci/parts.py", place / ".ci/parts.toml"
    script.write_text(script.read_text().replace("LAST_WORDS_S = 10", "LAST_WORDS_S = 0.5"))
    table.write_text(TABLE.replace("cat room/*.py", "tail -f /dev/null & echo $! > left; echo done"))
    code, shown, _ = called(run_python, place, "guards")
    subprocess.run(["kill", (place / "left").read_text().strip()], check=True)
    assert (code, "done\n" in shown) == (0, True)
