"""What is installed, and with which versions."""

import re
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import flagscale_perf
from flagscale_perf.spine.packages import ALL, MEGATRON, PARTS, PERFETTO, RPC, SERVE, STACKS, TABLES, TRACE
from tests.wheel import build_wheel

REPO = Path(__file__).parents[2]
# Of environments of their own, which may have other versions of what the others have, too.
APART = {"trace", "verl", "vllm", "fleet"}
NOT_PINNED = {
    "py-spy",  # a tool of the user's own; a stub stands in for it
    "wandb",  # only ever used through the host's own run; a test stands in for it
    "tomli",  # of Python 3.10 alone, which no environment of ours has
    "opentelemetry-exporter-otlp-proto-http",  # in requirements/trace.txt
}
PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")


def pins() -> dict[str, str]:
    """Normalised package name -> the file of requirements/ that pins it for `.venv`."""
    found: dict[str, str] = {}
    for path in sorted((REPO / "requirements").glob("*.txt")):
        if path.stem in APART:
            continue
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                assert PIN.fullmatch(line), f"{path.name}: {line!r} is not NAME==VERSION"
                name = normal(line.split("==")[0])
                assert name not in found, f"{name} is pinned in {found.get(name)} and in {path.name}"
                found[name] = path.name
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


EXTENSIONS = {f"flagscale_perf/spine/_hot{sysconfig.get_config_var('EXT_SUFFIX')}"}


@pytest.mark.parametrize(("compiler", "built"), [(None, EXTENSIONS), ("false", set())])
def test_the_wheel_holds_the_package_and_nothing_else(tmp_path, monkeypatch, compiler, built) -> None:
    if compiler is not None:
        monkeypatch.setenv("CC", compiler)  # every file it is given is one that it cannot compile
    wheel = build_wheel(tmp_path)
    source = tmp_path / "source"
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        info = f"flagscale_perf-{flagscale_perf.__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert held == built | {
        str(path.relative_to(source))
        for path in (source / "flagscale_perf").rglob("*")
        if path.suffix in (".py", ".pyi", ".typed", ".c", ".css", ".html", ".js", ".json", ".toml")
    }
    assert scripts.split("\n\n") == [
        "[console_scripts]\nflagscale-perf = flagscale_perf.__main__:main",
        "[verl.plugins]\nflagscale-perf = flagscale_perf.hosts.transfer_queue.verl_plugin",
        "[vllm.general_plugins]\nflagscale-perf = flagscale_perf.hosts.profiling.vllm:from_environment\n",
    ]
    assert (metadata["Version"], metadata["Requires-Python"]) == (flagscale_perf.__version__, ">=3.10")
    needs = metadata.get_all("Requires-Dist", [])
    assert sorted(needs) == sorted(wanted_of_pip())
    assert {normal(re.split(r"[<>=; ]", need)[0]) for need in needs} - set(pins()) == NOT_PINNED


def wanted_of_pip() -> list[str]:
    """What the metadata of the wheel must say: every part of the table that `doctor` shows, and `dev`."""
    always = [part.wanted for part in PARTS if part.extra is None]
    megatron, serve, rpc, trace, perfetto, stacks, tables = (
        [part.wanted for part in PARTS if part.extra == extra]
        for extra in (MEGATRON, SERVE, RPC, TRACE, PERFETTO, STACKS, TABLES)
    )
    extras = {
        MEGATRON: megatron,
        SERVE: serve,
        RPC: rpc,
        TRACE: trace,
        PERFETTO: perfetto,
        STACKS: stacks,
        TABLES: tables,
        ALL: [
            *(megatron + serve + rpc + trace + perfetto + stacks + tables),
            *(part.wanted for part in PARTS if part.extra == ALL),
        ],
        "dev": [*tables, "hypothesis", "mypy", "pandas", "pytest", "ruff"],
    }
    always.append('tomli>=2.0; python_version < "3.11"')  # Python's own since 3.11, so no part of the table
    return always + [f'{name}; extra == "{extra}"' for extra, names in extras.items() for name in names]


def test_every_requirement_is_pinned_once() -> None:
    pinned = pins()
    assert pinned["torch"] == "torch.txt"
    assert pinned["flag-scale"] == "flagscale.txt"
    assert {"pytest", "ruff", "mypy"} <= set(pinned)
