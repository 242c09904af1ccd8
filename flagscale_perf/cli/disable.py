"""`flagscale-perf disable`: undoes `enable`."""

from __future__ import annotations

from argparse import Namespace

from flagscale_perf.cli.base import Command
from flagscale_perf.hosts import autostart


class DisableCommand(Command):
    """Takes back what `enable` did."""

    def run(self, args: Namespace) -> int:
        """Removes the .pth file; prints its path."""
        path = autostart.disable()
        print(f"disabled: {path} removed" if path else "already disabled: nothing to remove")
        return 0
