"""flagscale_perf: know where every GPU-second of a Megatron / FlagScale run goes.

docs/reading.md has the public names. Each is imported when it is first used: importing the package costs
nothing.
"""

__version__ = "0.2.0"

# Public name -> the module it is in; of a module that is public itself: no name.
_PUBLIC = {
    "ModelShape": "flagscale_perf.flops_calculator",
    "PerfError": "flagscale_perf.spine.errors",
    "PerfMonitor": "flagscale_perf.hosts.manual",
    "monitor": "",
    "open_run": "flagscale_perf.opened",
    "open_runs": "flagscale_perf.opened",
    "profiling": "",
    "step_flops": "flagscale_perf.flops_calculator",
    "tracing": "",
}
__all__ = [
    "ModelShape",
    "PerfError",
    "PerfMonitor",
    "monitor",
    "open_run",
    "open_runs",
    "profiling",
    "step_flops",
    "tracing",
]

TYPE_CHECKING = False  # what `typing` calls so; importing it would double the cost of this file
if TYPE_CHECKING:
    from flagscale_perf import monitor, profiling, tracing
    from flagscale_perf.flops_calculator import ModelShape, step_flops
    from flagscale_perf.hosts.manual import PerfMonitor
    from flagscale_perf.opened import open_run, open_runs
    from flagscale_perf.spine.errors import PerfError
else:  # not seen by type checkers, which would take any name for public

    def __getattr__(name: str) -> object:
        """A public name, imported now."""
        import importlib

        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _PUBLIC[name]
        found = (
            getattr(importlib.import_module(module), name)
            if module
            else importlib.import_module(f"{__name__}.{name}")
        )
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        """Public names, for completion in a shell."""
        return sorted({*globals(), *__all__})
