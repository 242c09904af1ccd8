"""What the commands ask of the instruments of their sessions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.job import Job, open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.units import printable


def load_records() -> None:
    """Registers the record types of every instrument, so that any run file can be read."""
    for name in installed():
        importlib.import_module(f"flagscale_perf.{name}.records")


def has_screen(header: RunHeader) -> bool:
    """Whether `watch` can show the session with this header."""
    try:
        return load(header.instrument).offers("live")
    except PerfError:  # of a newer version
        return False


def session_of(run: Path, instrument: str) -> Session:
    """The session that a path means. Raises PerfError where there is none of this instrument."""
    session = open_session(run)
    session.check(instrument, "give its directory to `flagscale-perf report`")
    return session


def say(line: str) -> None:
    """Prints a line on stderr; printable, for it may quote what a file holds."""
    print(printable(line), file=sys.stderr, flush=True)


def say_others(job: Job, shown: Sequence[Session]) -> None:
    """Names on stderr the newest session of each instrument in the directory asked for that has none here."""
    own = {one.instrument for one in shown}
    for name, session_id in job.others(shown[0]).items():
        if name in own:
            continue
        say(f"the {name} session {session_id} is here, too; --session {session_id} shows it")
