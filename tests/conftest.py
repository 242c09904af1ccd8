"""Fixtures of every test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import settings

from flagscale_perf.spine import hot
from tests.golden import explain_mismatch
from tests.leaks import Traces, left_behind

REPO = Path(__file__).parents[1]
pytest_plugins = ("tests.skips", "tests.durations")

# A shell starts its background jobs with SIGINT ignored, and what a test starts would inherit that; in a
# terminal nobody does.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples every time, and no deadline that a busy machine could miss; HYPOTHESIS_PROFILE=deep looks
# fifty times as far.
settings.register_profile("ci", deadline=None, max_examples=100, derandomize=True, database=None)
settings.register_profile("deep", deadline=None, max_examples=5000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

HAS_FAILED = pytest.StashKey[bool]()
Completed = subprocess.CompletedProcess[str]
RunPython = Callable[..., Completed]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record",
        action="store_true",
        help="put the figures of the faults into tests/faults and docs/generated/faults.md",
    )


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """What is printed when an output differs from its golden file."""
    return explain_mismatch(left, right) if op == "==" else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remembers which test failed."""
    report = yield
    if report.failed:
        item.stash[HAS_FAILED] = True
    return report


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a thread, child process, socket, file, import hook, variable or directory
    behind. One that has failed left before it could tidy up.
    """
    before = Traces.now()
    yield
    found = [] if HAS_FAILED in request.node.stash else left_behind(before)
    if found:
        pytest.fail("left behind: " + "; ".join(found), pytrace=False)


@pytest.fixture(scope="session")
def repo() -> Path:
    """Root of this repository."""
    return REPO


@pytest.fixture(scope="module", params=["extension", "plain Python"])
def either_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """The hot path by its C extension, then in plain Python. Of a module's scope: Hypothesis asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "plain Python":
            patch.setattr(hot, "extension", None)
        elif hot.extension is None:
            pytest.skip("the extension is not built")
        yield


@pytest.fixture
def run_python(tmp_path: Path) -> RunPython:
    """Runs `python ARGS...` in an empty directory, this package importable, and waits for its end.

    `run_python("-c", code)`; keywords: `timeout_s`, `env` (added to the environment), `cwd`. Returns stdout
    and stderr as text. A run that outlasts its time is killed with everything it started, and fails the test.
    """

    def run(
        *args: str | Path, timeout_s: float = 600, env: Mapping[str, str] | None = None, cwd: Path = tmp_path
    ) -> Completed:
        command = [sys.executable, *map(str, args)]
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=_environment() | dict(env or {}),
            text=True,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            pytest.fail(f"{command} ran past {timeout_s} s\n{stdout}\n{stderr}")
        return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)

    return run


def _environment() -> dict[str, str]:
    """This process's without options of the monitor. The package is behind what is on the path: a suite that
    runs over a copy of it passes the copy on.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGSCALE_PERF_")}
    return kept | {"PYTHONPATH": os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(REPO))))}
