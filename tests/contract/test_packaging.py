"""What is installed, and with which versions."""

import re
import shutil
import zipfile
from email.parser import Parser
from pathlib import Path

import flagscale_perf

REPO = Path(__file__).parents[2]
PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*")


def pins() -> dict[str, str]:
    """Normalised package name -> the file of requirements/ that pins it."""
    found = {}
    for path in sorted((REPO / "requirements").glob("*.txt")):
        for line in path.read_text().splitlines():
            if line and not line.startswith("#"):
                assert PIN.fullmatch(line), f"{path.name}: {line!r} is not NAME==VERSION"
                name = normal(line.split("==")[0])
                assert name not in found, f"{name} is pinned in {found.get(name)} and in {path.name}"
                found[name] = path.name
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_wheel_holds_the_package_and_nothing_else(run_python, tmp_path) -> None:
    source = tmp_path / "source"
    shutil.copytree(
        REPO / "flagscale_perf", source / "flagscale_perf", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPO / name, source)
    built = run_python(
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "--wheel-dir",
        tmp_path,
        source,
    )
    assert built.returncode == 0, built.stdout + built.stderr

    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        info = f"flagscale_perf-{flagscale_perf.__version__}.dist-info"
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        scripts = archive.read(f"{info}/entry_points.txt").decode()
    assert held == {
        str(path.relative_to(source))
        for path in (source / "flagscale_perf").rglob("*")
        if path.suffix in (".py", ".typed", ".css", ".html", ".js")
    }
    assert scripts.split() == ["[console_scripts]", "flagscale-perf", "=", "flagscale_perf.cli:main"]
    assert (metadata["Version"], metadata["Requires-Python"]) == (flagscale_perf.__version__, ">=3.11")
    assert [need for need in metadata.get_all("Requires-Dist", []) if "extra ==" not in need] == []
    wanted = {normal(re.split(r"[<>=; ]", need)[0]) for need in metadata.get_all("Requires-Dist", [])}
    assert wanted - set(pins()) == set()


def test_every_requirement_is_pinned_once() -> None:
    pinned = pins()
    assert pinned["torch"] == "torch.txt"
    assert pinned["flag-scale"] == "flagscale.txt"
    assert {"pytest", "ruff", "mypy"} <= set(pinned)
