"""`flagscale-perf enable`: lets the training scripts of this environment understand --enable-perf-monitor."""

from __future__ import annotations

from argparse import Namespace

from flagscale_perf.cli.base import Command
from flagscale_perf.hosts import autostart


class EnableCommand(Command):
    """Lets the training scripts of this Python environment use the monitor."""

    def run(self, args: Namespace) -> int:
        """Writes the .pth file; prints where it is and what it changes."""
        was_enabled = autostart.is_enabled()
        path = autostart.enable()
        print(f"{'already enabled' if was_enabled else 'enabled'}: {path}")
        print(
            "Training scripts run by this Python now understand --enable-perf-monitor, and TQ_TRACE_ENABLED=1"
            " traces TransferQueue; other programs load nothing of it."
        )
        print("flagscale-perf disable takes it back.")
        return 0
