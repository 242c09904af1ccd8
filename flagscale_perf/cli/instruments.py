"""What the commands ask of the instruments of their sessions."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from flagscale_perf.analysis.instrument import Instrument, installed, load
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


def same_instrument(sessions: Sequence[Session]) -> Instrument:
    """The one of all of them. Raises PerfError where it is not one."""
    first, instrument = sessions[0], load(sessions[0].instrument)
    for one in sessions:
        if one.instrument != first.instrument:
            what, other = (load(each.instrument).what or f"a {each.instrument}" for each in (one, first))
            raise PerfError(
                f"{str(one.path)!r} is {what}, and {str(first.path)!r} is {other}; name run files of one"
                " instrument"
            )
    return instrument


def say(line: str) -> None:
    """Prints a line on stderr; printable, for it may quote what a file holds."""
    print(printable(line), file=sys.stderr, flush=True)


def say_others(job: Job, shown: Session) -> None:
    """Names on stderr the newest session of each other instrument in the directory asked for."""
    for name, session_id in job.others(shown).items():
        say(f"the {name} session {session_id} is here, too; --session {session_id} shows it")
