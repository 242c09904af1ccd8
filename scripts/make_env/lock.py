"""Makes requirements/lock from requirements: `python3 scripts/make_env/lock.py [OPTION...]`, options of
`uv pip compile`.

Every version stands with the hashes of all its files that the index has, whatever the machine. What is locked
already keeps its version unless it has to change. The index is pip's main one alone: of a version that
several have, uv would tell the hashes of one.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import venv
from pathlib import Path

from installer import ENTRY, Installer, get_installer
from steps import Failure, Steps

REPO = Path(__file__).resolve().parents[2]
LOCKS = REPO / "requirements/lock"
HEAD = "# Made by `make lock` from the files beside this directory.\n"
# Lock -> the files it is made from. Every one but the last ones holds what those need, too.
WHOLE = {
    "uv": ["uv"],
    "build": ["build"],
    "test": ["host", "run", "test", "torch"],
    "run": ["host", "run", "torch"],  # at the versions of `test`
    "trace": ["trace", "torch"],
    "vllm": ["vllm", "torch"],
    "fleet": ["fleet"],
}
# Installed without what they say they need.
ALONE = ("flagscale", "accelerate", "core", "bridge", "lightning", "verl")
# Which file of torch is the right one depends on the machine (requirements/torch.txt): its dependencies are
# locked; it is not, nor is what only one of its builds needs.
OF_TORCH = re.compile(r"torch(?!metrics)|triton|(?!nvidia-ml-py)nvidia-|cuda-")
# vLLM's torch is built for CPUs and does not bring triton, which something else there needs.
OF_VLLMS_TORCH = re.compile(r"torch")


def main(options: list[str]) -> int:
    """Makes every lock; returns the exit status."""
    os.environ["PIP_EXTRA_INDEX_URL"] = ""
    with tempfile.TemporaryDirectory() as scratch:
        venv.create(scratch, symlinks=True)
        steps = Steps(Path(scratch), REPO)
        try:
            with steps.step("uv", "uv") as step:
                uv = get_installer(step, Path(scratch), LOCKS / "uv.txt")
            if not uv.is_uv:
                print("make lock: no index that pip is set up for has uv", file=sys.stderr)
                return 1
            for name, sources in WHOLE.items():
                compile_lock(steps, uv, name, [*map(source, sources), *options])
            for name in ALONE:
                compile_lock(steps, uv, name, [source(name), "--no-deps", *options])
        except Failure as failure:
            print(f"make lock: {failure}", file=sys.stderr)
            return 1
    return 0


def source(name: str) -> str:
    """The file of what is asked for."""
    return f"requirements/{name}.txt"


def compile_lock(steps: Steps, uv: Installer, name: str, words: list[str]) -> None:
    """Makes one lock anew. Raises Failure."""
    path = LOCKS / f"{name}.txt"
    if name == "run":
        words = [*words, "--constraints", str(LOCKS / "test.txt")]
    with steps.step(path.name, name) as step:
        made = step.log.with_suffix(".lock")
        # the versions alone: of what it keeps, uv would take over the hashes, too
        locked = ENTRY.split(path.read_text())[1:] if path.exists() else []
        made.write_text("\n".join(entry.partition(" ")[0] for entry in locked))
        # for the oldest Python, whatever the base is; newer ones need no more than that
        uv.run(
            step, "compile", "--python-version", "3.11", "--generate-hashes", "--no-annotate", "--no-header",
            "--output-file", str(made), *words,
        )  # fmt: skip
    head, *entries = ENTRY.split(made.read_text())
    dropped = {"vllm": OF_VLLMS_TORCH}.get(name, OF_TORCH)
    path.write_text(HEAD + head + "".join(entry for entry in entries if not dropped.match(entry)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
