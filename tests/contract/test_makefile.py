"""Every make target that a page, a script or a message names is there, and `make help` fits a screen."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.walk.readme import commands

MAKEFILE = (REPO / "Makefile").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", MAKEFILE, re.MULTILINE))
GROUPS = ["run", "test", "measure", "maintain"]
MOST, WIDTH = 27, 80
INVENTING = (Path(__file__).name, "test_readme.py")  # pages with targets of their own
TEXTS = (
    "*.md",
    "docs/*.md",
    "examples/**/*.md",
    "flagscale_perf/**/*.py",
    "scripts/**/*",
    "benchmarks/*.py",
    "requirements/**/*.txt",
    "tests/**/*.py",
    ".ci/*",
    "pyproject.toml",
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """As in a shell: below another make, it would say so in every answer."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", *words], cwd=REPO, env=kept, capture_output=True, text=True, check=False, timeout=60
    )


def named(path: Path) -> set[str]:
    """Targets in a file's code and commands."""
    text = path.read_text(encoding="utf-8")
    typed = commands(text) if path.suffix == ".md" else []
    found = {word for command in typed for word in re.findall(r"^make ([a-z][\w-]*)", command)}
    return found | set(re.findall(r"`make ([a-z][\w-]*)", text))


@pytest.mark.parametrize("pattern", TEXTS)
def test_every_target_that_is_named_is_there(pattern: str) -> None:
    found = [path for path in REPO.glob(pattern) if path.is_file() and "__pycache__" not in path.parts]
    files = [path for path in found if path.name not in INVENTING]
    missing = {f"{path.relative_to(REPO)}: make {name}" for path in files for name in named(path) - TARGETS}
    assert files
    assert missing == set()


def test_help_names_every_group_and_fits_a_screen() -> None:
    shown = run("help").stdout.splitlines()
    assert [line for line in shown if re.fullmatch(r"\w+", line)] == GROUPS
    targets = [line.split()[1] for line in shown if line.startswith("  make ")]
    assert len(targets) == len(set(targets)) <= MOST
    assert set(targets) <= TARGETS
    assert [line for line in shown if len(line) > WIDTH] == []


def test_every_group_of_the_makefile_is_shown() -> None:
    """A word that help does not know would hide its target."""
    assert set(re.findall(r" ## ([a-z]+): ", MAKEFILE)) == set(GROUPS)


def test_every_target_is_a_command_and_no_file() -> None:
    (listed,) = re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)
    assert set(listed.split()) == TARGETS


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        (["bench", "NAME=ring"], ".venv/bin/python"),
        (["bench", "NAME=trace"], ".venv_trace/bin/python"),
        (["bench", "NAME=vllm"], ".venv_vllm/bin/python"),
        (["fleet", "ARGS=500"], ".venv_fleet/bin/python examples/fleet/compare.py outputs/fleet 500"),
        (["faults"], ".venv/bin/python -m pytest -p no:cacheprovider tests/faults "),
        (
            ["faults", "OF=trace"],
            ".venv_trace/bin/python -m pytest -p no:cacheprovider tests/trace/test_faults.py ",
        ),
    ],
    ids=" ".join,
)
def test_an_argument_chooses_the_environment(words: list[str], shows: str) -> None:
    assert shows in run("-n", *words).stdout


def test_a_benchmark_that_is_not_there() -> None:
    done = run("-n", "bench", "NAME=rings")
    assert done.returncode == 2
    assert re.search(r"no benchmark rings: NAME is one of .*\bring\b", done.stderr), done.stderr
