"""The trees of hosts to train with: folders or archives in a directory, and what is installed.

HOSTS names the directory; without it the one beside a checkout is looked into, `../shared/hosts`.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flagscale_perf.hosts.core_loop import commit_of
from tests.processes import flagscale as fs

REPO = Path(__file__).parents[2]
DIRECTORY = Path(os.environ.get("HOSTS") or REPO.parent / "shared" / "hosts")
ARCHIVES = (".tar.xz", ".tar.gz", ".tgz", ".whl")
MISSING = f"no trees of hosts in {DIRECTORY}: HOSTS=DIRECTORY names a place that has some"
# A tree's own script for GPTs, from its root; the first one that is there.
SCRIPTS = ("flagscale/train/megatron/train_gpt.py", "flagscale/train/train_gpt.py", "pretrain_gpt.py")
COMMIT = re.compile(r"-([0-9a-f]{7,40})$")


@dataclass(frozen=True)
class Host:
    """What is trained with.

    Attributes:
        name: as the table of docs/hosts.md has it.
        root: its directory.
        script: its unmodified training script for GPTs; None for Megatron-Core alone.
        path: what its own runner puts on PYTHONPATH; the last has Megatron-Core.
        is_flagscale: whether it has FlagScale's `run.py` and runner.
        is_bridge: whether it is Megatron-Bridge.
    """

    name: str
    root: Path
    script: Path | None
    path: tuple[Path, ...]
    is_flagscale: bool
    is_bridge: bool = False

    @property
    def has_monitor(self) -> bool:
        """Whether it has a monitor of its own under the flags that are ours, too."""
        return (self.root / "flagscale" / "train" / "perf_monitor").is_dir()

    @property
    def pythonpath(self) -> str:
        return os.pathsep.join(map(str, (*self.path, REPO)))


def places() -> list[Path]:
    """What is in the directory: folders and archives, in order; [] where there is none."""
    found = sorted(DIRECTORY.iterdir()) if DIRECTORY.is_dir() else []
    return [place for place in found if place.is_dir() or place.name.endswith(ARCHIVES)]


def source_trees() -> list[Path]:
    """Those that have more than Megatron-Core, which is all that a wheel has."""
    return [place for place in places() if place.suffix != ".whl"]


def name_of(place: Path) -> str:
    """Such as "flagscale 69487e3": the commit at the end of its name, or the one a checkout is at; of a
    wheel, package and version.
    """
    if place.suffix == ".whl":
        return " ".join(place.name.split("-")[:2])
    ending = next((ending for ending in ARCHIVES if place.name.endswith(ending)), "")
    name = place.name.removesuffix(ending)
    commit = COMMIT.search(name)
    return f"{name[: commit.start()]} {commit[1]}" if commit else f"{name} {commit_of(place) or ''}".rstrip()


def unpacked(into: Path) -> dict[Path, Path]:
    """A copy of each tree below `into`: its C++ helper is built inside it, and the place is not ours."""
    trees = {place: into / str(number) for number, place in enumerate(places())}
    for place, tree in trees.items():
        if place.is_dir():
            shutil.copytree(place, tree, symlinks=True)
        elif place.suffix == ".whl":
            shutil.unpack_archive(place, tree, "zip")
        else:
            with tarfile.open(place) as archive:
                archive.extractall(tree, filter="data")
    return trees


def host_of(place: Path, trees: Mapping[Path, Path]) -> Host | None:
    """What is trained with there; None without Megatron-Core. A FlagScale has the first Megatron-LM beside
    it, before all others one of FlagScale's, which has plug-ins; a Megatron-Bridge has a Megatron-Core, first
    one that was published alone.
    """
    tree = trees[place]
    script = next((tree / name for name in SCRIPTS if (tree / name).is_file()), None)
    if is_bridge(tree):
        cores = [core for core in trees.values() if has_core(core)]
        cores.sort(key=lambda core: not list(core.glob("megatron_core-*.dist-info")))
        assert cores, f"{place.name} needs a Megatron-Core: put its wheel beside it"
        return Host(name_of(place), tree, None, (tree, cores[0]), False, is_bridge=True)
    if not (tree / "flagscale").is_dir():
        return Host(name_of(place), tree, script, (tree,), False) if has_core(tree) else None
    cores = sorted(filter(has_core, trees.values()), key=lambda core: not (core / "megatron/plugin").is_dir())
    assert cores, f"{place.name} needs a Megatron-LM: put the tree of one beside it"
    return Host(name_of(place), tree, script, (tree, tree / "flagscale" / "train", cores[0]), True)


def is_bridge(tree: Path) -> bool:
    """Whether Megatron-Bridge can be imported from it."""
    return (tree / "megatron" / "bridge").is_dir()


def has_core(tree: Path) -> bool:
    """Whether Megatron-Core can be imported from it."""
    return (tree / "megatron" / "core").is_dir()


def installed() -> Host:
    """FlagScale as it is on the package index."""
    root = fs.root()
    path = (root, root / "third_party" / "Megatron-LM")
    return Host("FlagScale 0.8.0", root, fs.train_gpt(), path, True)
