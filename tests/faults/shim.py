"""The preloaded library of shim.c: built here, steered from here while the processes run that have loaded
it.
"""

from __future__ import annotations

import mmap
import shutil
import struct
import subprocess
from pathlib import Path

FIELDS = (
    "error",
    "every",
    "block_ms",
    "byte",
    "shift_s",
    "frozen_s",
    "hostname",
    "threads",
    "poll",
    "calls",
    "on_training",
)
_SOURCE = Path(__file__).with_name("shim.c")


def build(directory: Path) -> Path:
    """The library."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "needs a C compiler"
    target = directory / "shim.so"
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", target, _SOURCE, "-ldl"],
        check=True,
    )
    return target


class Shim:
    """What goes wrong in the processes started with `environment`; every field is 0 at first. See `struct
    control` in shim.c.
    """

    def __init__(self, library: Path, control: Path, below: Path) -> None:
        """File calls on `below` and what is in it are the ones that fail; `control` is the file through which
        it is told.
        """
        control.write_bytes(bytes(8 * len(FIELDS)))
        self.environment = {
            "LD_PRELOAD": str(library),
            "FAULT_CONTROL": str(control),
            "FAULT_PATH": str(below),
        }
        with control.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def set(self, **values: int) -> None:
        """From now on."""
        for name, value in values.items():
            struct.pack_into("q", self._memory, 8 * FIELDS.index(name), value)

    def get(self, name: str) -> int:
        """As it is now."""
        return struct.unpack_from("q", self._memory, 8 * FIELDS.index(name))[0]

    def heal(self) -> None:
        """The file calls work again; those that wait for ever go on waiting."""
        self.set(error=0, every=0, block_ms=0, byte=0)

    def close(self) -> None:
        """Gives the memory back."""
        self._memory.close()
