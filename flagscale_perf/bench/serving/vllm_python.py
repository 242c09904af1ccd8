"""Finds vLLM and the devices it runs on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import versions

LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('vllm') is None)"
# the name of its package differs between installations
VERSION = (
    "from importlib.metadata import packages_distributions, version;"
    " print(version(packages_distributions()['vllm'][0]))"
)
LOOK_S = 60
CORE, GPU = "core", "GPU"
PLUGIN = "[vllm.general_plugins]\nflagscale-perf = flagscale_perf.hosts.profiling.vllm:from_environment\n"


@dataclass(frozen=True)
class Devices:
    """The devices of which each vLLM rank takes one.

    Attributes:
        what: `CORE` or `GPU`.
        names: of each: number of a core, index of a GPU.
    """

    what: str
    names: tuple[str, ...]

    @property
    def count(self) -> int:
        """How many vLLM ranks there can be."""
        return len(self.names)

    @property
    def are_gpus(self) -> bool:
        """Whether a rank runs on a GPU rather than a core."""
        return self.what == GPU


def find_python(given: str | None) -> str:
    """The given Python, or this one. Raises PerfError if it has no vLLM."""
    python = given or sys.executable
    if given is not None and shutil.which(given) is None:
        raise PerfError(
            f"--vllm-python {given}: no such program; give the Python of an environment with vLLM"
        )
    try:
        ended = _asked(python, LOOK)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PerfError(f"--vllm-python {python}: cannot be run ({error})") from None
    if ended.returncode == 0:
        return python
    raise PerfError(
        f"{python} has no package vllm; give --vllm-python PROGRAM, the Python of an environment that has it"
        " (`make venv-vllm` makes .venv_vllm/bin/python)"
    )


def version_of(python: str) -> str | None:
    """The version of its vLLM; None if no package tells."""
    ended = _asked(python, VERSION)
    return ended.stdout.strip() if ended.returncode == 0 else None


def _asked(python: str, script: str) -> subprocess.CompletedProcess[str]:
    words, nothing = [python, "-c", script], subprocess.DEVNULL
    return subprocess.run(words, stdin=nothing, capture_output=True, text=True, timeout=LOOK_S, check=False)


@cache
def devices() -> Devices:
    """GPUs if there is an NVIDIA driver, otherwise the cores that this process may use. The torch of this
    Python is not asked: vLLM may be in another one, and this one made for CPUs.
    """
    if found := _gpus():
        return Devices(GPU, found)
    return Devices(CORE, tuple(str(core) for core in sorted(os.sched_getaffinity(0))))


def _gpus() -> tuple[str, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES allows."""
    try:
        import pynvml
    except ImportError:
        return ()
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except (OSError, pynvml.NVMLError):
        return ()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return tuple(str(index) for index in range(count))
    return tuple(name.strip() for name in visible.split(",") if name.strip())


def rank_cores(ranks: int, most: int, cores: tuple[str, ...]) -> str:
    """VLLM_CPU_OMP_THREADS_BIND for so many ranks. Each has as many cores as in the arm with the most ranks,
    so that a rank is the same in every arm.
    """
    each = max(1, len(cores) // most)
    return "|".join(",".join(cores[rank * each : (rank + 1) * each]) for rank in range(ranks))


def plugin_path(directory: Path) -> Path:
    """A directory for PYTHONPATH with this package and its vLLM plug-in, whatever else is installed."""
    name = "flagscale_perf"
    version = versions([name]).get(name) or "0"
    info = directory / f"{name}-{version}.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: flagscale-perf\nVersion: {version}\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(PLUGIN, encoding="utf-8")
    link = directory / name
    if not link.is_symlink():
        link.symlink_to(Path(__file__).parents[2])
    return directory


def clean_environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Environment of vLLM's processes: no downloads, no reports, and no proxy for this machine."""
    kept = {name: value for name, value in variables.items() if not name.startswith("FLAGSCALE_PERF_")}
    local = ",".join(filter(None, (variables.get("no_proxy", ""), "127.0.0.1", "localhost")))
    return kept | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "no_proxy": local, "NO_PROXY": local}
