"""`flagscale-perf capture`: lets a live run keep the raw marks of all ranks for some steps."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Any

from flagscale_perf.arguments import MAX_CAPTURE_STEPS
from flagscale_perf.cli.asking import add_run, ask, live_run
from flagscale_perf.cli.base import Command, typed
from flagscale_perf.options.values import whole
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.records import CaptureRecord
from flagscale_perf.training.requests import STEPS


class CaptureCommand(Command):
    """Lets a live run keep the raw marks of all ranks for some steps."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and how many steps."""
        add_run(parser)
        parser.add_argument(
            "--steps",
            type=typed(whole(1, MAX_CAPTURE_STEPS, 20)),
            required=True,
            metavar="N",
            help=f"how many, 1 to {MAX_CAPTURE_STEPS}",
        )

    def run(self, args: Namespace) -> int:
        """Returns once the run has answered which steps. Raises PerfError if no live run has phases."""
        run = live_run(args.run)
        if not run.header.config.get("perf_breakdown"):
            raise PerfError(
                f"the run of {str(run.path)!r} cannot capture: it was started without "
                "--perf-breakdown; start it with that"
            )
        busy = ", or still captures other steps"
        found = ask(run, {STEPS: args.steps}, _is_answer, busy)[-1]
        print(
            f"iterations {found.first_iteration} to {found.iteration} of every rank are captured"
            f" into {run.path} when they come"
        )
        return 0


def _is_answer(record: Any) -> bool:
    return isinstance(record, CaptureRecord) and not record.why
