"""Builds a libnvidia-ml.so.1 of our own, so that the real nvidia-ml-py runs against a driver that fails as we
like.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

DEVICE_UUID = "1"
SLICE_UUID = "2"  # of a device that is divided: knows its clocks, not its power
_SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(directory: Path, old: bool = False, source: str = _SOURCE.name) -> Path:
    """The library's directory. `old`: many functions are not in it; `source`: which driver it is."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "needs a C compiler"
    defines = ["-DOLD"] if old else []
    target = directory / "libnvidia-ml.so.1"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *defines, "-o", target, _SOURCE.with_name(source)],
        check=True,
    )
    return directory


def environment(directory: Path, mode: str = "") -> dict[str, str]:
    """Lets a process load the library; `mode` says what is wrong with it, see the source."""
    path = os.pathsep.join(filter(None, (str(directory), os.environ.get("LD_LIBRARY_PATH"))))
    return {"LD_LIBRARY_PATH": path, "FAKE_NVML": mode}
