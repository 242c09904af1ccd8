"""The wheel of this repository, as `pip install .` makes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).parents[1]


def build_wheel(directory: Path) -> Path:
    """Builds it from a copy of the source, `directory/source`: pip would leave a build folder in ours."""
    source = directory / "source"
    shutil.copytree(
        REPO / "flagscale_perf",
        source / "flagscale_perf",
        ignore=shutil.ignore_patterns("__pycache__", "*.so"),
    )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    offline = ["--no-deps", "--no-build-isolation", "--no-index"]
    built = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", *offline, "--wheel-dir", str(directory), str(source)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (wheel,) = directory.glob("*.whl")
    return wheel
