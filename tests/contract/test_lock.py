"""What is locked (requirements/lock) is what was asked for (requirements), and every line of it can be
checked.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
SOURCES = {
    "uv": ("uv",),
    "build": ("build",),
    "run": ("host", "run"),
    "test": ("host", "run", "test"),
    "flagscale": ("flagscale",),
    "accelerate": ("accelerate",),
    "oracle": ("oracle",),
    "bridge": ("bridge",),
    "trace": ("trace",),
    "verl": ("verl",),
    "vllm": ("vllm",),
}
PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")
HASH = re.compile(r" +--hash=sha256:[0-9a-f]{64}")


def pins_of(path: Path) -> dict[str, str]:
    """Version by name in one spelling."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith(("#", " "))]
    found = [PIN.match(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if not match]
    return {re.sub(r"[-_.]+", "-", match[1]).lower(): match[2] for match in found if match}


@pytest.mark.parametrize("name", SOURCES)
def test_what_was_asked_for_is_locked_at_that_version(name: str) -> None:
    locked = pins_of(REQUIREMENTS / f"lock/{name}.txt")
    asked = {
        package: version
        for source in SOURCES[name]
        for package, version in pins_of(REQUIREMENTS / f"{source}.txt").items()
    }
    assert {package: locked.get(package) for package in asked} == asked, "run `make lock`"


@pytest.mark.parametrize("name", SOURCES)
def test_every_locked_version_has_a_hash(name: str) -> None:
    lines = (REQUIREMENTS / f"lock/{name}.txt").read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if PIN.match(line):
            assert line.endswith(" \\")
            assert HASH.match(following), line
        elif line and not line.startswith("#"):
            assert HASH.fullmatch(line.removesuffix(" \\")), line
            assert line.endswith("\\") == bool(HASH.match(following))


def test_nothing_is_locked_or_asked_for_that_the_scripts_do_not_install() -> None:
    assert {path.stem for path in (REQUIREMENTS / "lock").iterdir()} == set(SOURCES)
    asked = {source for sources in SOURCES.values() for source in sources}
    assert {path.stem for path in REQUIREMENTS.glob("*.txt")} == asked | {"torch", "tools"}


def test_the_test_lock_has_all_of_the_run_lock() -> None:
    """Either makes the same .venv: what `make test` adds leaves the rest as it is."""
    run, test = ((REQUIREMENTS / f"lock/{name}.txt").read_text() for name in ("run", "test"))
    entries = re.split(r"^(?=\w)", run, flags=re.MULTILINE)[1:]
    assert len(entries) == len(pins_of(REQUIREMENTS / "lock/run.txt"))
    assert [entry for entry in entries if entry not in test] == []


def test_torch_alone_has_no_hash() -> None:
    assert pins_of(REQUIREMENTS / "torch.txt").keys() == {"torch"}
    for name in ("run", "test", "trace", "vllm"):
        assert "torch" not in pins_of(REQUIREMENTS / f"lock/{name}.txt")
