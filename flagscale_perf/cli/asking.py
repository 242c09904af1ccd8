"""Asks a live training for something: a request beside its run file, which answers into that."""

from __future__ import annotations

import contextlib
import time
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.follow import Follower
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import local_path
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import replace_file
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.session import capture_request_name

WAIT_S = 30.0
PERIOD_S = 0.2
_UNKNOWN = "; whether it still runs cannot be known here: run this on its own machine"


def add_run(parser: ArgumentParser) -> None:
    """The argument that names a live training."""
    about = "the --perf-log-dir of a running training, or its perf_records_*.jsonl"
    parser.add_argument("run", type=local_path, metavar="RUN_DIR_OR_FILE", help=about)


def live_run(path: Path) -> Session:
    """The training that writes there. Raises PerfError where none does."""
    run = open_session(path, instrument="training")
    if run.is_live() is False:
        raise PerfError(f"no training writes {str(run.path)!r} now; give the directory of a live one")
    return run


def ask(
    run: Session, request: Mapping[str, Any], is_last: Callable[[Any], bool], busy: str = ""
) -> list[Any]:
    """What the run writes from now on, up to the record that answers. Raises PerfError without one; `busy`:
    why that may be, beside that it does not train.
    """
    path = run.path.with_name(capture_request_name(run.header.start_wall_ns))
    found: list[Any] = []
    with contextlib.closing(Follower(run.path)) as follower:
        list(follower.poll())  # what is there already is not the answer
        try:
            replace_file(path, dump(request).encode())
        except OSError as error:
            raise PerfError(
                f"cannot write {str(path)!r}: {error.strerror}; run it as a user who may write there"
            ) from None
        try:
            deadline_s = time.monotonic() + WAIT_S
            while time.monotonic() < deadline_s:
                for record in follower.poll():
                    found.append(record)
                    if is_last(record):
                        return found
                if run.is_live() is False:
                    raise PerfError(f"the run of {str(run.path)!r} has ended before it answered")
                time.sleep(PERIOD_S)
        finally:
            with contextlib.suppress(OSError):
                path.unlink()
    raise PerfError(
        f"the run of {str(run.path)!r} has not answered within {WAIT_S:g} s: it is not training now"
        f"{busy}; try again" + _UNKNOWN * (run.is_live() is None)
    )
