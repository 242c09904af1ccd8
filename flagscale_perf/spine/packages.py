"""The optional parts: packages that parts of the monitor use, what for, and what to type to get each."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class Part:
    """One optional part. `flagscale-perf doctor` lists them all; setup.py asks pip for the same versions.

    Attributes:
        module: what is imported; "" for a program.
        wanted: what pip is asked for: a package's name, with the lowest version that will do.
        purpose: what is not there without it.
        extra: of setup.py, which brings it along; None for what every installation brings along.
    """

    module: str
    wanted: str
    purpose: str
    extra: str | None = None

    @property
    def name(self) -> str:
        """The package's, as pip knows it."""
        return re.split(r"[<>=!~ ]", self.wanted)[0]

    @property
    def version(self) -> str | None:
        """The installed one, without importing the package: None where it is not installed, `found` where it
        is and pip knows of no version.
        """
        try:
            if self.module and importlib.util.find_spec(self.module) is None:
                return None
        except ImportError:  # of the package around the module
            return None
        return versions([self.name]).get(self.name, "found" if self.module else None)

    @property
    def line(self) -> str:
        """The command that installs it; of an extra whose parts are used together, all of them."""
        others = [part.wanted for part in PARTS if part.extra in _USED_TOGETHER and part.extra == self.extra]
        return install_line(*(others or [self.wanted]))


MEGATRON, SERVE, RPC, TRACE, PERFETTO, STACKS, TABLES, ALL = (
    *("megatron", "serve", "rpc", "trace", "perfetto", "stacks", "tables", "all"),
)
_USED_TOGETHER = (SERVE, TABLES)
PARTS = (
    Part("hydra", "hydra-core>=1.3", "run.py"),
    Part("omegaconf", "omegaconf>=2.3", "run.py"),
    Part("yaml", "PyYAML>=6.0", "flagscale-perf flops --args FILE.yaml"),
    Part("tensorboard", "tensorboard>=2.14", "the monitor's curves in TensorBoard"),
    Part("pynvml", "nvidia-ml-py>=12.535", "power, clocks, temperature and errors of NVIDIA's GPUs"),
    Part("rich", "rich>=13", "flagscale-perf watch"),
    Part("plotly", "plotly>=6.0", "pages with charts: --format html"),
    Part("matplotlib", "matplotlib>=3.8", "flagscale-perf report --format png"),
    Part("prometheus_client", "prometheus-client>=0.20", "--perf-prometheus-port and -textfile"),
    Part("msgspec", "msgspec>=0.18", "reading run files: flagscale-perf report, watch, compare"),
    Part("numpy", "numpy>=1.26", "reports of profiles, calls and experiments"),
    Part("torch", "torch", "training; flagscale-perf peak, unless with --device", MEGATRON),
    Part(
        "megatron",
        "megatron-core>=0.15",
        "training loops of your own (FlagScale and Megatron-LM bring theirs along)",
        MEGATRON,
    ),
    Part("starlette", "starlette>=0.40", "flagscale-perf serve", SERVE),
    Part("uvicorn", "uvicorn>=0.30", "flagscale-perf serve", SERVE),
    Part("zmq", "pyzmq>=26", "calls between processes: flagscale_perf.rpc.probe", RPC),
    Part("msgpack", "msgpack>=1.0", "messages of the examples of calls", RPC),
    Part(
        "opentelemetry",
        "opentelemetry-exporter-otlp-proto-http>=1.30",
        "--perf-otlp; flagscale-perf trace-export --format otlp",
        TRACE,
    ),
    Part("perfetto", "perfetto>=0.50", "flagscale-perf trace-export -o NAME.pftrace and NAME.tar", PERFETTO),
    Part("", "py-spy>=0.4", "stacks of a process that hangs and does not answer", STACKS),
    Part("pyarrow", "pyarrow>=18", "flagscale-perf seal, query and report --format parquet", TABLES),
    Part("duckdb", "duckdb>=1.3", "flagscale-perf query", TABLES),
    Part("pandas", "pandas", "the tables of flagscale_perf.open_run; examples/analysis", ALL),
    Part("wandb", "wandb", "--perf-wandb", ALL),
)


def install_line(package: str, *before: str) -> str:
    """The command that installs a package into the running Python environment; `before` it stand options or
    other packages.
    """
    return shlex.join([sys.executable, "-m", "pip", "install", *before, package])


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The versions of those packages that are installed."""
    from importlib import metadata  # a third of what a writer process would import otherwise

    found = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


def find_part(module: str | None) -> Part | None:
    """The part that a module belongs to, such as `ImportError.name` says it; None for anything else."""
    top = (module or "").partition(".")[0]
    return next((part for part in PARTS if top and part.module == top), None)


def missing(module: str, error: ImportError | OSError, user: str, instead: str = "") -> PerfError:
    """Two lines for the user of a command: what is missing, and what to type.

    Args:
        module: of the part that was to be imported; if another part is missing for it, that one is named.
        error: what its import raised; OSError where one of its libraries cannot be loaded.
        user: what needs it, such as `--format html`.
        instead: what else would do, such as `take another --format`.
    """
    part = find_part(error.name if isinstance(error, ImportError) else None) or find_part(module)
    assert part is not None
    what, line = how_missing(part, error)
    return PerfError(f"{user} needs {part.name}, which {what}\n{line}{instead and f', or {instead}'}")


def how_missing(part: Part, error: ImportError | OSError) -> tuple[str, str]:
    """Whether it `is not installed` or `cannot be imported`, and the line to type against it."""
    if isinstance(error, ModuleNotFoundError) and find_part(error.name) == part:
        return "is not installed", f"install it: {part.line}"
    return (
        f"cannot be imported: {error}",
        f"install it again: {install_line(part.wanted, '--force-reinstall')}",
    )
