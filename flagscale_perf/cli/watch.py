"""`flagscale-perf watch`: shows a running training live in the terminal."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.follow import TAIL_BYTES, Follower
from flagscale_perf.analysis.instrument import Live, load
from flagscale_perf.analysis.job import Job
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import Command, add_run
from flagscale_perf.cli.instruments import has_screen
from flagscale_perf.cli.stopping import leave
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.store.run_file import JOINED

PERIOD_S = 1.0
LOOK_S = 30.0  # between looks at what else was recorded of the job


class WatchCommand(Command):
    """Shows a run while it goes on."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and whether to show it only once."""
        add = parser.add_argument
        add_run(parser)
        add(
            "--session",
            metavar="ID",
            help="stay with this session of the directory (default: the newest that leads a job)",
        )
        add("--once", action="store_true", help="print one frame and end, for scripts")

    def run(self, args: Namespace) -> int:
        """Shows the run until Ctrl-C. Raises PerfError without a run, a terminal or package rich."""
        try:
            from flagscale_perf.report.watch import Frame, as_text
        except ImportError as error:
            raise missing("rich", error, "watch", "use flagscale-perf report") from None
        is_screen = not args.once and sys.stdout.isatty()
        with contextlib.closing(_View(args.run, args.session, may_wait=is_screen)) as view:
            if args.once:
                print(as_text(Frame(*view.look()), shutil.get_terminal_size((100, 40)).columns), end="")
                return 0
            if not is_screen:
                raise PerfError("watch needs a terminal for its screen; use --once in scripts")
            _show(view)
        return 0


class _View:
    def __init__(self, path: Path, session_id: str | None, may_wait: bool) -> None:
        """Raises PerfError where there is no run, unless it may be waited for and none has begun yet."""
        self._run: Live | None = None
        self._header: RunHeader | None = None
        self._path, self._session_id = path, session_id
        self._follower: Follower | None = None
        self._before = ""
        self._job = _JobAround(path, session_id)
        if not (may_wait and Job(path).is_without_run):
            self._follow()

    def _follow(self) -> None:
        """The session that leads the job, or the newest one that has a screen. Raises PerfError."""
        self._job.look()
        self.close()
        self._follower = Follower(self._path, self._session_id, self._job.fits)

    def look(self) -> tuple[Report | None, tuple[str, ...]]:
        """The screen, None before the session's header is there, and lines for its foot, after taking in what
        is new. Raises PerfError for a file that is no run file.
        """
        is_waiting = self._follower is None and not Job(self._path).is_without_run
        if is_waiting or (self._follower is not None and self._job.is_led_anew()):
            self._follow()
        follower = self._follower
        for record in follower.poll() if follower else ():
            is_first = follower is not None and record is follower.header is not self._header
            if is_first and isinstance(record, RunHeader):
                self._before = self._run.before() if self._run else ""
                self._run, self._header = load(record.instrument).live(record), record
            if self._run is not None:
                self._run.add(record)
        if self._run is None or follower is None:
            return None, self._notes()
        return self._run.report(follower.has_writer(), time.time_ns()), self._notes()

    def _notes(self) -> tuple[str, ...]:
        """What is missing, and the file."""
        follower = self._follower
        if follower is None:
            return (f"no run in {str(self._path)!r} yet; it is shown when its training begins",)
        notes = [self._before]
        if follower.is_partial:
            notes.append(f"a long file: only its last {TAIL_BYTES >> 20} MiB were read")
        if follower.is_joined:
            notes.append(f"a second header: {JOINED}")
        if follower.skipped:
            notes.append(f"left out, lines that are no records: {follower.skipped:,}")
        notes += self._job.beside.get(follower.path, [])
        return tuple(filter(None, (*notes, str(follower.path))))

    def close(self) -> None:
        if self._follower is not None:
            self._follower.close()


class _JobAround:
    """The job in the directory, looked at now and then.

    Attributes:
        beside: a line for each session beside the leading one, by that one's file.
    """

    def __init__(self, path: Path, session_id: str | None) -> None:
        self._path, self._is_asked = path, session_id is not None or path.is_file()
        self._lead, self._due_s = "", 0.0
        self._seen: dict[Path, tuple[int, str]] = {}  # a session's size, and its line then
        self.beside: dict[Path, list[str]] = {}

    def fits(self, header: RunHeader) -> bool:
        """Whether the session with this header is to be shown."""
        return has_screen(header) and self._lead in ("", header.instrument)

    def is_led_anew(self) -> bool:
        """Whether a session of another instrument leads the job since the last look."""
        before = self._lead
        if time.monotonic() >= self._due_s:
            self.look()
        return self._lead != before

    def look(self) -> None:
        """Finds out which instrument leads, and what the others have found."""
        self._due_s, self.beside = time.monotonic() + LOOK_S, {}
        if self._is_asked:
            return
        with contextlib.suppress(PerfError):
            whole = Job(self._path).whole()
            self._lead = whole.lead.instrument if has_screen(whole.lead.header) else ""
            self.beside = {whole.lead.path: [self._line(one.session) for one in whole.members]}

    def _line(self, session: Session) -> str:
        """The session with its costliest finding; a long one only with its name."""
        size_bytes, name = session.size_bytes, f"{session.instrument} session {session.header.session_id}"
        if size_bytes > TAIL_BYTES:
            return f"{name}: `report` shows it"
        if self._seen.get(session.path, (0, ""))[0] != size_bytes:
            findings = load(session.instrument).report(session).findings
            found = findings.found[0].title if findings and findings.found else "nothing found"
            self._seen[session.path] = size_bytes, f"{name}: {found}"
        return self._seen[session.path][1]


def _show(view: _View) -> None:
    """The screen, until Ctrl-C; the last frame stays on the terminal."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from flagscale_perf.report.watch import Frame

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)  # so that the terminal is as before whatever ends us
    console = Console(highlight=False)
    shown = Frame(*view.look())
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(Group(shown, Text("Ctrl-C quits", style="bright_black")), refresh=True)
            time.sleep(PERIOD_S)
            shown = Frame(*view.look())
    console.print(shown)
