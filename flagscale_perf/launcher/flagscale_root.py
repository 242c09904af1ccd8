"""Finds FlagScale and the training script without importing anything of FlagScale."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import install_line

# FlagScale's script for GPTs: until 0.8, and on its main branch.
ENTRYPOINTS = (
    os.path.join("flagscale", "train", "train_gpt.py"),
    os.path.join("flagscale", "train", "megatron", "train_gpt.py"),
)
HOW_TO_INSTALL = install_line("flag-scale==0.8.0", "--no-deps")


def find_flagscale(configured: str | None, environ: Mapping[str, str]) -> str | None:
    """FlagScale's root: the configured one, else $FLAGSCALE_HOME, else the installed package, else None.

    Raises PerfError where the first two name something else than FlagScale.
    """
    for source, given in (
        ("experiment.task.flagscale_root", configured),
        ("FLAGSCALE_HOME", environ.get("FLAGSCALE_HOME")),
    ):
        if given:
            root = os.path.abspath(os.path.expanduser(given))
            if not os.path.isdir(os.path.join(root, "flagscale", "train")):
                raise PerfError(
                    f"{source}: {given!r} is not a FlagScale tree (no flagscale/train in it); give its root"
                    " directory"
                )
            return root
    spec = find_spec("flag_scale")
    places = list(spec.submodule_search_locations or []) if spec else []
    return places[0] if places else None


def import_paths(root: str) -> list[str]:
    """The directories of a FlagScale that go onto PYTHONPATH: its root, and where its Megatron-LM is.

    The main branch has a part of it in `flagscale/train`; the rest, Megatron-LM-FL, is installed beside it.
    """
    places = [os.path.join(root, "third_party", "Megatron-LM"), os.path.join(root, "flagscale", "train")]
    return [root, *(place for place in places if os.path.isdir(os.path.join(place, "megatron", "training")))]


def find_entrypoint(configured: str | None, root: str | None, cwd: str) -> str:
    """The training script, absolute: of the working directory, else of FlagScale. Raises PerfError.

    FlagScale's own for GPTs may be named as any version of FlagScale has it.
    """
    given = os.path.normpath(configured or ENTRYPOINTS[0])
    for base in (cwd, *([root] if root else [])):
        for name in ENTRYPOINTS if given in ENTRYPOINTS else (given,):
            path = os.path.normpath(os.path.join(base, name))
            if os.path.isfile(path):
                return path
    if root is None:
        raise PerfError(
            f"experiment.task.entrypoint: no file {given!r} in {cwd}, and FlagScale is not installed;"
            " install it with\n"
            f"    {HOW_TO_INSTALL}\nor name a checkout with experiment.task.flagscale_root=DIR"
        )
    raise PerfError(
        f"experiment.task.entrypoint: no file {given!r}, neither in {cwd} nor in FlagScale at {root}; give"
        " the script's path"
    )
