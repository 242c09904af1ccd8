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

from flagscale_perf.hosts.host_names import commit_of
from tests.processes import flagscale as fs

REPO = Path(__file__).parents[2]
DIRECTORY = Path(os.environ.get("HOSTS") or REPO.parent / "shared" / "hosts")
ARCHIVES = (".tar.xz", ".tar.gz", ".tgz")
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
        script: its unmodified training script for GPTs.
        path: what its own runner puts on PYTHONPATH.
        is_flagscale: whether it has FlagScale's `run.py` and runner.
    """

    name: str
    root: Path
    script: Path
    path: tuple[Path, ...]
    is_flagscale: bool

    @property
    def pythonpath(self) -> str:
        return os.pathsep.join(map(str, (*self.path, REPO)))


def places() -> list[Path]:
    """What is in the directory: folders and archives, in order; [] where there is none."""
    found = sorted(DIRECTORY.iterdir()) if DIRECTORY.is_dir() else []
    return [place for place in found if place.is_dir() or place.name.endswith(ARCHIVES)]


def name_of(place: Path) -> str:
    """Such as "flagscale 69487e3": the commit at the end of its name, or the one a checkout is at."""
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
        else:
            with tarfile.open(place) as archive:
                archive.extractall(tree, filter="data")
    return trees


def host_of(place: Path, trees: Mapping[Path, Path]) -> Host | None:
    """What is trained with there; None without a script. A FlagScale has the first Megatron-LM beside it."""
    tree = trees[place]
    script = next((tree / name for name in SCRIPTS if (tree / name).is_file()), None)
    if script is None:
        return None
    is_flagscale = (tree / "flagscale").is_dir()
    cores = [other for other in trees.values() if (other / "megatron" / "core").is_dir()]
    path = (tree, tree / "flagscale" / "train", *cores[:1]) if is_flagscale else (tree,)
    return Host(name_of(place), tree, script, path, is_flagscale)


def installed() -> Host:
    """FlagScale as it is on the package index."""
    root = fs.root()
    path = (root, root / "third_party" / "Megatron-LM")
    return Host("FlagScale 0.8.0", root, fs.train_gpt(), path, True)
