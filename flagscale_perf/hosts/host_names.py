"""What a host is called, by the file of its training loop: the same in `doctor` and in the facts of a run."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path

from flagscale_perf.hosts.core_loop import version_of

# FlagScale's loop, from its root: its own until 0.8, in its copy of Megatron's training package since.
_OWN_LOOP = ("flagscale", "train", "train.py")
_COPIED_LOOP = ("flagscale", "train", "megatron", "training", "training.py")


def host_name(source: Path, core_version: str) -> str:
    """Such as "FlagScale 0.8.0", "FlagScale 1.0.0 (commit 69487e3, core 0.17.1)" or
    "Megatron-LM (core 0.15.0)".

    Args:
        source: the loop's file.
        core_version: of the Megatron-Core that it runs with.
    """
    for loop in (_OWN_LOOP, _COPIED_LOOP):
        if source.parts[-len(loop) :] == loop:
            root = source.parents[len(loop) - 1]
            if root.name == "flag_scale":  # of the package index, which brings its own Megatron-LM along
                return f"FlagScale {version_of('flag-scale')}"
            commit = commit_of(root)
            details = [*([f"commit {commit}"] if commit else []), f"core {core_version}"]
            return f"FlagScale {_version_of_tree(root)} ({', '.join(details)})"
    return f"Megatron-LM (core {core_version})"


def _version_of_tree(root: Path) -> str:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return str(tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])
    return "unknown"


def commit_of(root: Path) -> str | None:
    """The first seven digits of the commit that a checkout is at; None for what is no checkout."""
    git = root / ".git"
    with contextlib.suppress(OSError, ValueError):
        head = (git / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head[:7] or None
        ref = head.removeprefix("ref: ")
        if (git / ref).is_file():
            return (git / ref).read_text(encoding="utf-8")[:7] or None
        for line in (git / "packed-refs").read_text(encoding="utf-8").splitlines():
            if line.endswith(f" {ref}"):
                return line[:7]
    return None
