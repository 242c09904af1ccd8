"""Profiling is left out of a copy of the package: the monitor is what it was, and says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flagscale_perf.hosts.profiled import ABSENT

REPO = Path(__file__).parents[2]
IS_UNTOUCHED = """
import sys
from flagscale_perf.hosts.install import Installation, _refuse_wrong
Installation(["--enable-perf-monitor"], {}).install().undo()
_refuse_wrong({"enable_perf_monitor": True})
ours = [name for name in sys.modules if name.startswith(("flagscale_perf.", "torch."))]
print([name for name in ours if "profil" in name])
_refuse_wrong({"enable_perf_monitor": True, "perf_profile_steps": "3"})
"""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package without the two folders."""
    directory = tmp_path_factory.mktemp("copy")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPO / "flagscale_perf", directory / "flagscale_perf", ignore=ignored)
    for folder in ("profile", "hosts/profiling"):
        shutil.rmtree(directory / "flagscale_perf" / folder)
    return directory


def in_copy(copy: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(copy)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, timeout=120)


def test_the_monitor_gets_in_and_refuses_to_profile(copy: Path) -> None:
    done = in_copy(copy, "-c", IS_UNTOUCHED)
    assert (done.returncode, done.stdout) == (2, "['flagscale_perf.hosts.profiled']\n")
    assert done.stderr == f"flagscale_perf: error: --perf-profile-steps 3-3: {ABSENT}\n"


def test_nothing_of_it_is_loaded_unless_it_is_asked_for() -> None:
    done = in_copy(REPO, "-c", IS_UNTOUCHED)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['flagscale_perf.hosts.profiled']\n"


def test_doctor_and_a_report_do_without_it(copy: Path) -> None:
    # torch, which is not asked about here, takes a second and a half to import
    blocked = "import sys; sys.modules['torch'] = None; from flagscale_perf.cli import main; sys.exit(main())"
    done = in_copy(copy, "-c", blocked, "doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nprofile " not in done.stdout
    run = copy / "perf_records_20240129_103000.jsonl"
    shutil.copy(REPO / "tests/golden/perf_records.jsonl", run)
    done = in_copy(copy, "-m", "flagscale_perf", "report", str(run), "--full")
    assert done.stdout == (REPO / "tests/golden/report.txt").read_text(encoding="utf-8")
