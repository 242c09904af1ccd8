"""What a path means, looked at once: one listing, one header of each file. What this finds is handed on;
nothing behind it takes a path.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from flagscale_perf.analysis.found import Found, began_in, find
from flagscale_perf.analysis.instrument import installed, load, signs_of_logs
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.log_files import has_mark, has_title, log_files
from flagscale_perf.analysis.machines import grouped, groups, is_of_job, mates_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.whole import Whole, stretch_of, whole_of
from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import (
    REALTIME_FILE,
    file_names,
    session_of,
    session_shown_by,
)
from flagscale_perf.store.rows import Rows
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.runs import files_near, find_runs, runs_below
from flagscale_perf.store.strangers import FOREIGN, GIVE, NO_RUN_FILE, no_run_in

WAIT_S = 10.0
PERIOD_S = 0.2
FRESH_S = 60.0  # a directory or an empty file that is younger may be a session's that begins
Fits = Callable[[RunHeader], bool]


class Job:
    """What lies at a path (a directory, a run file, another file of a session, which means that, or a log):
    run files of sessions, logs of another program, or nothing yet.

    Attributes:
        path: as it was given.
        files: run files of the directory, from old to new; or the one that a file's path means.
    """

    def __init__(self, path: Path, session_id: str | None = None) -> None:
        """Looks at the path. Raises PerfError for what cannot be one of these.

        Args:
            session_id: a session of the directory; None for the newest.
        """
        self.path, self._session_id = path, session_id
        self._opened: dict[Path, Found] = {}
        self.files: list[Found] = []
        self._names: list[str] = []
        self._directory = path.parent if path.name == REALTIME_FILE and path.is_file() else path
        if self._directory.is_dir():
            self._names = _names_in(self._directory)
            ours = [self._directory / name for name in self._names if session_of(name)]
            self.files = sorted(map(self._open, ours), key=lambda one: one.age)
        elif path.exists():
            self.files = [self._open(_of_session(_beside(path), session_id))]

    def _open(self, path: Path) -> Found:
        if path not in self._opened:
            self._opened[path] = find(path)
        return self._opened[path]

    def chosen(self, fits: Fits | None = None) -> Found:
        """The file that is meant: of a directory the session asked for or the newest one (the newest that
        `fits`, if any does); of one job in its sub directories what leads that, or the first that `fits`.
        Raises PerfError naming what is there instead.
        """
        if not self.path.exists():
            raise PerfError(f"{str(self.path)!r} does not exist; {GIVE} or a perf_records_*.jsonl in it")
        if not self.files:
            if self._session_id is not None or (below := self._below()) is None:
                raise no_run_in(self._directory, self._names)
            fitting = (one for one in below.sessions if fits and fits(one.header))
            return self._open(next(fitting, below.lead).path)
        if self._session_id is None or not self._directory.is_dir():
            return self._newest(fits)
        names = {session_of(each.path.name): each for each in self.files}
        if self._session_id not in names:
            known = ", ".join(map(str, [*names][-10:]))
            raise PerfError(f"no session {self._session_id!r} in {str(self.path)!r}; there are {known}")
        return names[self._session_id]

    def _newest(self, fits: Fits | None) -> Found:
        unread: list[Found] = []
        for each in reversed(self.files):
            if each.trouble and self._is_beside(each):
                continue
            if each.run is None:  # damaged, or its header is not written yet: only its last change is known
                unread.append(each)
            elif fits is None:  # one that is newer by its name, too, is the newest
                return next((other for other in unread if other.path.name > each.path.name), each)
            elif fits(each.run.header):
                return each
        return self.files[-1]

    def _is_beside(self, unread: Found) -> bool:
        """Whether it began while one lasted that can be read, which is meant then."""
        return any(each.run and not each.trouble and began_in(unread, each.run) for each in self.files)

    def session(self, fits: Fits | None = None) -> Session:
        """That of the chosen file with all machines of its job; or the logs here. Raises PerfError."""
        if self.logs is not None:
            return self.logs
        found = self.chosen(fits)
        if found.run is None:
            raise found.trouble or PerfError(f"{found.path}: {NO_RUN_FILE}")
        around = self._around(found.run)
        files = _group_of(found.run, around)
        return Session(files, aside=_aside(files, around))

    def whole(self, instrument: str | None = None) -> Whole:
        """The job of the session that is meant; of a session, a file or an instrument that was asked for, its
        session alone. Raises PerfError.
        """
        if instrument is not None:
            return whole_of(self._of(instrument), [])
        if self._session_id is None and not self.files and (below := self._below()) is not None:
            return below
        chosen = self.session()
        if self._session_id is not None or not self._directory.is_dir() or not chosen.files:
            return whole_of(chosen, [])
        return self.whole_of(chosen)

    def whole_of(self, session: Session) -> Whole:
        """The job that a session is of, among those in the directory and right below it. Raises PerfError."""
        whole = whole_of(session, self._overlapping(session))
        if whole.lead is not session:  # it lasted longer, and more may lie in it
            whole = whole_of(whole.lead, self._overlapping(whole.lead))
        near = map(self._open, files_near(self._directory))
        unread = [each.trouble for each in near if each.trouble and began_in(each, *whole.lead.files)]
        said = [f"a file of the same time cannot be read: {why}" for why in unread]
        return replace(whole, apart=[*whole.apart, *said])

    def _below(self) -> Whole | None:
        """The one job of which all sessions right below a directory are that has none itself; else None."""
        if not self._directory.is_dir():
            return None
        known = {name for name in installed() if load(name).leads >= 0}
        runs = [each.run for each in map(self._open, files_near(self._directory)) if each.run]
        sessions = grouped([run for run in runs if run.header.instrument in known])
        if not sessions:
            return None
        whole = self.whole_of(max(sessions, key=stretch_of))
        return whole if len(whole.sessions) == len(sessions) else None

    def _of(self, instrument: str) -> Session:
        """The newest session that this instrument recorded of the job; where it has none, the newest here."""
        whole = self.whole()
        if found := whole.of(instrument):
            return found[-1]
        session = self.session(lambda header: header.instrument == instrument)
        if session.instrument != instrument:
            there = {one.instrument for one in whole.sessions}
            there |= {each.run.header.instrument for each in self.files if each.run}
            near = "" if instrument in installed() else did_you_mean(instrument, installed())
            raise PerfError(
                f"no session of the instrument {instrument!r} in {str(self.path)!r}; there are sessions of"
                f" {', '.join(sorted(there))}{near}"
            )
        return session

    def _overlapping(self, session: Session) -> list[Session]:
        """Sessions in the directory and right below it that may have lasted at the same time."""
        begin_ns, end_ns = stretch_of(session)
        near = map(self._open, files_near(self._directory))
        runs = [each.run for each in near if each.run and not each.trouble]
        return grouped([run for run in runs if run.header.start_wall_ns <= end_ns and _lasted(run, begin_ns)])

    def near(self, path: Path) -> list[Path]:
        """Run files of its job that were written after it began, in its directory and right below."""
        own = self._open(path).run
        if own is None:
            return []
        runs, began_ns = [each.run for each in self._around(own) if each.run], own.header.start_wall_ns
        return [run.path for run in runs if run.changed_ns >= began_ns and is_of_job(own.header, run.header)]

    def mates_of(self, path: Path) -> list[Path]:
        """Run files of other machines of its job."""
        run = self._open(path).run
        return [] if run is None else [each.path for each in _group_of(run, self._around(run))[1:]]

    def _around(self, own: RunFile) -> list[Found]:
        """Files in the same directory and right below it, into which another machine's were copied."""
        return [*map(self._open, files_near(own.path.parent))] if "job" in own.header.facts else []

    @cached_property
    def logs(self) -> Session | None:
        """The logs of another program that an instrument reads, where there is no run file."""
        is_directory = self._directory.is_dir()
        is_run = bool(self.files or self._session_id) if is_directory else any(one.run for one in self.files)
        if is_run or not self.path.exists():
            return None
        path = self.path if is_directory else self.files[0].path
        name = None if session_of(path.name) else _instrument_of_logs(path)
        return None if name is None else Session([], logs=[path], instrument=name)

    def sessions(self) -> Listing:
        """All sessions of a directory, oldest first. Raises PerfError where there is none."""
        names = _names_in(self.path)  # refuses a file
        if not self.files:
            raise no_run_in(self.path, names)
        listing = _listed(Listing(self.path, [], []), self.files)
        if not listing.sessions and (trouble := self.files[0].trouble):
            raise trouble
        return listing

    def others(self, shown: Session) -> dict[str, str]:
        """The newest session of each other instrument in the directory, by the instrument's name."""
        if not self.path.is_dir() or shown.logs or shown.path.parent != self.path:
            return {}
        known = {*installed()} - {shown.instrument}
        named = [(each.run.header.instrument, session_of(each.path.name)) for each in self.files if each.run]
        return {instrument: name for instrument, name in named if name and instrument in known}

    @property
    def is_without_run(self) -> bool:
        """Whether it is a directory in which a first session may yet begin, there or not."""
        if not self.path.exists():
            return self.path.parent.is_dir() and not self.path.suffix
        # also those that are called otherwise than sessions are, which `chosen` takes
        return self.path.is_dir() and not (self.files or files_near(self.path) or runs_below(self.path))

    @property
    def awaited(self) -> str | None:
        """A session that is evidently starting and has nothing to read yet, in words."""
        try:
            if self.path.is_dir() and self.is_without_run:
                is_new = _is_fresh(self.path) and self.logs is None
                return f"{str(self.path)!r} is new and has no run yet" if is_new else None
            path, run, _ = self.chosen()
            if run is None:
                is_new = path.is_file() and path.stat().st_size == 0 and _is_fresh(path)
                return f"{str(path)!r} is new and empty" if is_new else None
            is_starting = not run.has_begun() and run.is_live()
            return f"session {run.header.session_id} is just starting" if is_starting else None
        except (PerfError, OSError):
            return None  # the next one to read it says why


def open_session(path: Path, session_id: str | None = None, instrument: str | None = None) -> Session:
    """The session that a path means, by preference one of this instrument. Raises PerfError without one."""
    return Job(path, session_id).session(
        None if instrument is None else lambda header: header.instrument == instrument
    )


def begun(path: Path, session_id: str | None, say: Callable[[str], None]) -> Job:
    """The job, once there is something to read: at once, unless a session is evidently starting. Then it says
    so, and waits for its first iteration, for `WAIT_S` at most.
    """
    end_s = time.monotonic() + WAIT_S
    job, is_first = Job(path, session_id), True
    while (what := job.awaited) and time.monotonic() < end_s:
        if is_first:
            say(f"{what}: waiting for its first iteration, {WAIT_S:g} s at most")
        is_first = False
        time.sleep(PERIOD_S)
        job = Job(path, session_id)
    return job


def sessions_below(directory: Path) -> Listing:
    """The sessions in a directory and below it, a job once for all its machines. Raises PerfError without
    any.
    """
    paths, unread = find_runs(directory)
    return _listed(Listing(directory, [], unread, Rows(directory)), map(find, paths))


def _listed(listing: Listing, found: Iterable[Found]) -> Listing:
    """With the sessions of these files, and those that none of the instruments here can read left out."""
    files = []
    for path, run, trouble in found:
        if run is None or trouble:
            listing.leave_out(path, trouble or PerfError(NO_RUN_FILE))
        else:
            files.append(run)
    listing.sessions.extend(grouped(files))
    return listing


def _lasted(run: RunFile, until_ns: int) -> bool:
    """Whether it may have; a copy's time of the last change may lie before all that is in it."""
    return run.changed_ns >= until_ns or run.changed_ns < run.header.start_wall_ns


def _group_of(own: RunFile, around: Iterable[Found]) -> list[RunFile]:
    """The files of its session, itself first."""
    others = [each.run for each in around if each.run and each.run.header != own.header]  # no copies of it
    found = next(files for files in groups([own, *others]) if own in files)
    return [own, *(each for each in others if each in found)]


def _aside(files: Sequence[RunFile], around: Iterable[Found]) -> list[str]:
    """What has to be said of files near a session that are, or may be, of the same job and not in it."""
    headers = [file.header for file in files]
    others = [each.run for each in around if each.run and each.run.header not in headers]
    beside = [run.path.name for run in others if any(mates_of(file, [run]) for file in files)]
    unread = [f"{each.path.name}: {each.trouble}" for each in around if each.run is None]
    return [
        f"{what}: {len(found):,}, the first {found[0]}"
        for found, what in (
            (beside, "run files of this job that overlap with these and are a session of their own"),
            (unread, "run files beside it that cannot be read and may be of further machines"),
        )
        if found
    ]


def run_files_in(directory: Path) -> dict[Path, bool | None]:
    """Whether each run file of the directory is still written, see `RunFile.is_live`; an empty one is."""
    return {path: run.is_live() if run else True for path, run, _ in Job(directory).files}


def _names_in(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except OSError as error:
        raise PerfError(
            f"cannot read {str(directory)!r}: {error.strerror}; give the directory of --perf-log-dir"
        ) from None


def _beside(path: Path) -> Path:
    """The run file of a session of which this is any file."""
    if path.name.startswith("events.out.tfevents"):
        raise PerfError(f"{str(path)!r} has TensorBoard's curves; {GIVE}")
    shown = session_shown_by(path.name)
    if shown is None:
        return path
    records = path.with_name(file_names(shown)["records"])
    if not records.exists():
        raise PerfError(
            f"{str(path)!r} is made of the run file {records.name}, which is not beside it; {GIVE}. {FOREIGN}"
        )
    return records


def _of_session(path: Path, session_id: str | None) -> Path:
    found = session_of(path.name)
    if session_id is not None and found is not None and session_id != found:
        raise PerfError(f"{str(path)!r} is of session {found}; leave --session out, or give its directory")
    return path


def _instrument_of_logs(path: Path) -> str | None:
    """The instrument that reads the log: its title stands in the first lines, or one of its marks anywhere.
    Of logs with marks there may be a whole directory.
    """
    try:
        files = log_files(path)
        known = signs_of_logs()
        if not path.is_dir():
            for name, one in known.items():
                if one.title and has_title(path, one.title.encode()):
                    return name
    except PerfError:
        return None
    marks = [(name, mark.encode()) for name, one in known.items() for mark in one.marks]
    return next((name for file in files for name, mark in marks if has_mark(file, mark)), None)


def _is_fresh(path: Path) -> bool:
    return time.time() - path.stat().st_mtime < FRESH_S
