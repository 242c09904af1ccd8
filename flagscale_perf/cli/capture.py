"""`flagscale-perf capture`: lets a live run keep the raw marks of all ranks for some steps."""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from flagscale_perf.analysis.follow import Follower
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.arguments import MAX_CAPTURE_STEPS
from flagscale_perf.cli.base import Command, local_path
from flagscale_perf.options.values import whole
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import replace_file
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.session import capture_request_name
from flagscale_perf.training.records import CaptureRecord

WAIT_S = 30.0
PERIOD_S = 0.2
_UNKNOWN = "; whether it still runs cannot be known here: run this on its own machine"


class CaptureCommand(Command):
    """Lets a live run keep the raw marks of all ranks for some steps."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and how many steps."""
        add = parser.add_argument
        add(
            "run",
            type=local_path,
            metavar="RUN_DIR_OR_FILE",
            help="the --perf-log-dir of a running training, or its perf_records_*.jsonl",
        )
        add(
            "--steps",
            type=_steps,
            required=True,
            metavar="N",
            help=f"how many, 1 to {MAX_CAPTURE_STEPS}",
        )

    def run(self, args: Namespace) -> int:
        """Returns once the run has answered which steps. Raises PerfError if no live run has phases."""
        run = open_session(args.run, instrument="training")
        config = run.header.config
        if run.is_live() is False:
            raise PerfError(f"no training writes {str(run.path)!r} now; give the directory of a live one")
        if not config.get("perf_breakdown"):
            raise PerfError(
                f"the run of {str(run.path)!r} cannot capture: it was started without "
                "--perf-breakdown; start it with that"
            )
        with contextlib.closing(Follower(run.path)) as follower:
            list(follower.poll())  # what is there already is not the answer
            found = _ask(run, args.steps, follower)
        print(
            f"iterations {found.first_iteration} to {found.iteration} of every rank are captured"
            f" into {run.path} when they come"
        )
        return 0


def _steps(text: str) -> int:
    try:
        return whole(1, MAX_CAPTURE_STEPS, 20)(text)
    except PerfError as error:
        raise ArgumentTypeError(str(error)) from None


def _ask(run: Session, steps: int, follower: Follower) -> CaptureRecord:
    """Asks the run; returns its answer. Raises PerfError without one."""
    request = run.path.with_name(capture_request_name(run.header.start_wall_ns))
    try:
        replace_file(request, dump({"steps": steps}).encode())
    except OSError as error:
        raise PerfError(
            f"cannot write {str(request)!r}: {error.strerror}; run it as a user who may write there"
        ) from None
    try:
        deadline_s = time.monotonic() + WAIT_S
        while time.monotonic() < deadline_s:
            for record in follower.poll():
                if isinstance(record, CaptureRecord) and not record.why:
                    return record
            if run.is_live() is False:
                raise PerfError(f"the run of {str(run.path)!r} has ended before it answered")
            time.sleep(PERIOD_S)
    finally:
        with contextlib.suppress(OSError):
            request.unlink()
    raise PerfError(
        f"the run of {str(run.path)!r} has not answered within {WAIT_S:g} s: it is not training now, "
        "or still captures other steps; try again" + _UNKNOWN * (run.is_live() is None)
    )
