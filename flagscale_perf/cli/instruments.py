"""The table of instruments; nothing else knows all of them."""

from __future__ import annotations

import importlib
import importlib.util

# Folders of the package; the module `records` of each registers its record types.
INSTRUMENTS = ("training",)


def load_records() -> None:
    """Registers the record types of every instrument that is installed, so that any run file can be read."""
    for instrument in INSTRUMENTS:
        if importlib.util.find_spec(f"flagscale_perf.{instrument}") is not None:
            importlib.import_module(f"flagscale_perf.{instrument}.records")
