"""Runs as tables: of their records, which `store` keeps, and of what their reports say."""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache, reduce
from operator import or_
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from zlib import crc32

from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.jobs import as_jobs
from flagscale_perf.analysis.listing import Listing
from flagscale_perf.analysis.machines import sessions_of
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.files import DIRECTORY_MODE
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.records import NOT_KNOWN, RUNNING, kind_of
from flagscale_perf.store import cache as kept
from flagscale_perf.store.cache import Place
from flagscale_perf.store.query import Answer, Lake, asked, quoted
from flagscale_perf.store.replaced import Replaced
from flagscale_perf.store.runs import find_runs
from flagscale_perf.store.seal import Columns, Sealed, add_tables, beside, seal
from flagscale_perf.store.sidecars import NoSidecar, SidecarSealer
from flagscale_perf.store.tables import Tables, arrow, table_of

if TYPE_CHECKING:
    import pyarrow

MAX_RUNS = 100_000  # a millisecond and 50 KB each
JOBS = "jobs"  # a view of the sessions that belong together
ABOUT = {"runs": "run", "findings": "finding"}  # views of what reports say, and the kinds of their tables
_VIEWS = {
    "runs": "select * from records.header left join records.run using (run_id, session_id, host)",
    "findings": "select * from records.finding",
}
_PASSING = {RUNNING, NOT_KNOWN}  # states that may change without a new record
_TRIES = 3
Say = Callable[[str], None]
_Read = TypeVar("_Read")


class RunRow(NamedTuple):
    """What the report of a session says; of several machines it stands beside the first one's header.

    Attributes:
        end_reason: how it ended: as in `RunEnd`, or "running", "killed" or "not known".
        findings: how many; None where none are looked for.
        first_finding: title of the costliest.
        skipped_lines: lines that are no records.
    """

    end_reason: str
    findings: int | None
    first_finding: str | None
    skipped_lines: int | None


class FindingRow(NamedTuple):
    """A finding; the fields are as in `rules.Finding`.

    Attributes:
        place: among the findings of its session, from 1, the costliest first.
        causes, changes: texts, the likeliest and the best first.
        evidence: as JSON.
    """

    place: int
    name: str
    title: str
    cost_s: float | None
    cost_share: float | None
    gain: float | None
    gain_of: str
    least_s: float | None
    least_gain: float | None
    first_iteration: int | None
    iteration: int | None
    ranks: list[int]
    phase: str | None
    pattern: str | None
    causes: list[str]
    changes: list[str]
    evidence: list[dict[str, Any]]


@cache
def all_tables() -> Tables:
    """What all instruments know of their records as tables."""
    return reduce(or_, (load(name).tables for name in installed()))


def tables_about(session: Session) -> dict[str, pyarrow.Table]:
    """The tables of the kinds of `ABOUT`. Raises PerfError where the session cannot be read."""
    report, header = load(session.instrument).report(session.again()), session.header
    found = None if report.findings is None else report.findings.found
    reading, make = report.reading, all_tables().runs.get(session.instrument)
    run = RunRow(
        report.state,
        None if found is None else len(found),
        found[0].title if found else None,
        None if reading is None else reading.skipped,
    )
    figures = make(report.content)._asdict() if make else {}
    findings = [
        {**vars(each), **each.as_dict(), "place": place} for place, each in enumerate(found or (), start=1)
    ]
    rows = {"run": [(header, run._asdict() | figures)], "finding": [(header, each) for each in findings]}
    return {kind: table_of(_types_about(kind), each) for kind, each in rows.items()}


def _types_about(kind: str) -> list[Any]:
    return [RunRow, *all_tables().figure_types] if kind == "run" else [FindingRow]


@cache
def schemas_about() -> dict[str, pyarrow.Schema]:
    """The schemas of the tables of the kinds of `ABOUT`."""
    return {kind: table_of(_types_about(kind), []).schema for kind in ABOUT.values()}


class Source:
    """The tables of run files, made where they are not there.

    Attributes:
        sealed: by the paths of the files; of a run that is there twice, the first one.
    """

    def __init__(self, paths: Sequence[Path], say: Say, temporary: Path | None = None) -> None:
        """`say` is told what is left out; `temporary`: for tables that cannot be kept. Raises PerfError where
        the only file cannot be read.
        """
        self.sealed: dict[Path, Sealed] = {}
        self._say, self._temporary = say, temporary
        self._known: dict[str, Path] = {}
        with Replaced() as replaced:
            for path in paths:
                try:
                    self._add(path, self._seal(path, replaced))
                except PerfError as error:
                    if len(paths) == 1:
                        raise
                    say(f"{path}: left out: {error}")

    def _add(self, path: Path, made: Sealed) -> None:
        other = self._known.setdefault(made.run_id, path)
        if other == path:
            self.sealed[path] = made
        else:
            self._say(f"{path}: left out: it is the same run as {other}")

    def _seal(self, path: Path, replaced: Replaced) -> Sealed:
        try:
            return seal(path, all_tables(), replaced=replaced)
        except OSError as error:
            why = f"{path}: its tables cannot be kept: {error.strerror or error}"
            if self._temporary is None:
                raise PerfError(why) from None
            if kept.IS_ON:
                self._say(f"{why}; they are made for this once")
            return seal(path, all_tables(), Place(self._temporary, (f"{len(self._known)}",)))

    @property
    def files(self) -> dict[str, list[Path]]:
        """Tables by their kind."""
        found = defaultdict[str, list[Path]](list)
        for made in self.sealed.values():
            for kind, paths in made.files.items():
                found[kind] += paths
        return found

    def about(self) -> dict[str, list[Path]]:
        """Tables of the kinds of `ABOUT`, made where they are not there; what may change without a new record
        is not kept.
        """
        found: dict[str, list[Path]] = {kind: [] for kind in ABOUT.values()}
        with Replaced() as replaced:
            for session in sessions_of(self.sealed):
                made = [self.sealed[file.path] for file in session.files]
                key = f"{crc32(repr([[each.key for each in made], schemas_about()]).encode()):08x}"
                try:
                    for kind, path in self._about(session, made[0], key, replaced).items():
                        found[kind].append(path)
                except (PerfError, OSError) as error:
                    self._say(f"{session.path}: left out of {' and '.join(ABOUT)}: {error}")
        return found

    def sidecars(self, kind: str, note: Say) -> list[Path]:
        """Tables of a kind of `Tables.sidecars`, made where they are not there; `note` is told what they
        lack.
        """
        found = list[Path]()
        with Replaced() as replaced:
            for number, session in enumerate(sessions_of(self.sealed)):
                places, why = [self.sealed[session.files[0].path].place], ""
                if self._temporary is not None:
                    places.append(Place(self._temporary, (kind, f"{number}")))
                for place in places:
                    try:
                        found += _of_sidecars(place, session, kind, note, replaced)
                        break
                    except (PerfError, OSError) as error:
                        why = f"{session.path}: left out of {kind}: {error}"
                else:
                    self._say(why)
        return found

    def _about(self, session: Session, first: Sealed, key: str, replaced: Replaced) -> dict[str, Path]:
        paths = {kind: beside(first, kind, key) for kind in ABOUT.values()}
        if all(path.is_file() for path in paths.values()):
            return paths
        tables = tables_about(session)
        if tables["run"]["end_reason"][0].as_py() not in _PASSING:
            try:
                add_tables(first.place, {path: tables[kind] for kind, path in paths.items()}, replaced)
                return paths
            except OSError:
                if self._temporary is None:
                    raise
        if self._temporary is None:
            return {}
        place = Place(self._temporary, (key,))
        paths = {kind: place.path / f"{kind}.parquet" for kind in paths}
        add_tables(place, {path: tables[kind] for kind, path in paths.items()}, replaced)
        return paths


def _of_sidecars(place: Place, session: Session, kind: str, note: Say, replaced: Replaced) -> list[Path]:
    tables, reader = all_tables(), None
    with suppress(NoSidecar):
        reader = tables.sidecars[kind].open(session)
    found, remarks = SidecarSealer(place, session.header, kind, tables).seal(reader, replaced)
    for each in remarks:
        note(each)
    return found


def files_of(path: Path, say: Say) -> list[Path]:
    """The run files that a path means: of the session of a file, or all of a directory and below. Raises
    PerfError where there is none.
    """
    if not path.is_dir():
        return _paths_of(open_session(path))
    paths, unread = find_runs(path, sys.maxsize)
    if len(paths) > MAX_RUNS:
        raise PerfError(
            f"{str(path)!r} has {len(paths):,} run files in it and below; at most {MAX_RUNS:,} are asked or"
            " sealed at once; give directories further down, or see docs/query.md for engines"
        )
    for each in unread:
        say(f"{path / each.path}: left out: {each.reason}")
    return paths


def _paths_of(session: Session) -> list[Path]:
    if not session.files:
        raise PerfError(f"{str(session.path)!r} is a log, which has no records; give a run file")
    return [each.path for each in session.files]


def ask(path: Path, sql: str, say: Say) -> Answer:
    """The answer to a SELECT over a session, or over all below a directory; `say` is told what is left out.
    Raises PerfError.
    """
    arrow("flagscale-perf query")
    tables, names = all_tables(), asked(sql)
    is_about = not names.isdisjoint({*ABOUT, *ABOUT.values()})
    schemas = tables.schemas | schemas_about() | tables.sidecar_schemas

    def answer(source: Source) -> Answer:
        files = source.files | (source.about() if is_about else {})
        files |= {kind: source.sidecars(kind, say) for kind in names.intersection(tables.sidecars)}
        jobs = _jobs(source.sealed if JOBS in names else {})
        with Lake(schemas, files, {**tables.views, **_VIEWS, JOBS: jobs}) as lake:
            return lake.ask(sql)

    return _read(files_of(path, say), say, answer)


def _jobs(sealed: Mapping[Path, Sealed]) -> str:
    """A SELECT that says of each run file which one leads its job."""
    found = as_jobs(Listing(Path(), sessions_of(sealed), []))
    rows = [
        (sealed[file.path].run_id, sealed[lead.path].run_id, lead.instrument)
        for lead in found.sessions
        for session in (lead, *found.members.get(lead.path, ()))
        for file in session.files
    ]
    values = [f"({', '.join(map(quoted, row))})" for row in rows]
    known = ", ".join(values or ["('', '', '')"])
    return f"select * from (values {known}) as jobs(run_id, job_id, lead){' where false' * (not rows)}"


def _read(paths: Sequence[Path], say: Say, read: Callable[[Source], _Read]) -> _Read:
    """What `read` makes of the tables; anew where others have replaced them meanwhile, at last of tables of
    its own.
    """
    with tempfile.TemporaryDirectory(prefix="flagscale_perf_") as temporary:
        for _ in range(_TRIES):
            with suppress(FileNotFoundError):
                return read(Source(paths, say, Path(temporary)))
        with kept.switched_off():
            return read(Source(paths, say, Path(temporary)))


def to_arrow(session: Session, kind: str | type) -> pyarrow.Table:
    """The records of a kind, or of a type, of all files of a session; or what its report says: "run" and
    "finding". Raises PerfError.
    """
    arrow("a table of Arrow")
    tables, name = all_tables(), kind if isinstance(kind, str) else kind_of(kind)
    if name in ABOUT.values():
        return tables_about(session)[name]
    schemas = tables.schemas | tables.sidecar_schemas
    if name not in schemas:
        known = [*schemas, *ABOUT.values()]
        raise PerfError(
            f"{name!r} is no kind of records{did_you_mean(name, known)}; there are {', '.join(known)}"
        )
    paths = _paths_of(session)
    if name in tables.sidecars:
        tables.sidecars[name].open(session)  # which says why there is nothing

    def read(source: Source) -> pyarrow.Table:
        remarks: list[str] = []
        is_record = name not in tables.sidecars
        found = source.files.get(name, ()) if is_record else source.sidecars(name, remarks.append)
        about = None if is_record else {"remarks": dump(remarks)}
        return Columns(found, schemas[name]).table().replace_schema_metadata(about)

    return _read(paths, _raise, read)


def from_columns(session: Session, record_type: type, make: Callable[[Columns], _Read]) -> _Read:
    """What `make` makes of the columns of a type's table. Raises PerfError."""
    kind, schemas = kind_of(record_type), all_tables().schemas

    def read(source: Source) -> _Read:
        return make(Columns(source.files.get(kind, ()), schemas[kind]))

    return _read(_paths_of(session), _raise, read)


def _raise(line: str) -> None:
    raise PerfError(line)


def write_tables(session: Session, directory: Path, note: Say) -> list[Sealed]:
    """Writes the tables of a session into a directory, laid out as beside its files; `note` is told what
    those of `Tables.sidecars` lack. Raises PerfError.
    """
    place = Place(directory, (), DIRECTORY_MODE)
    try:
        with Replaced() as replaced:
            made = [seal(path, all_tables(), place, replaced) for path in _paths_of(session)]
            about = tables_about(session).items()
            add_tables(place, {beside(made[0], kind, "report"): table for kind, table in about}, replaced)
            for kind in all_tables().sidecars:
                _of_sidecars(place, session, kind, note, replaced)
    except OSError as error:
        raise PerfError(f"{directory}: cannot be written: {error.strerror or error}") from None
    return made


def seal_all(directory: Path, say: Say, note: Say) -> list[Sealed]:
    """The tables of all sessions in and below a directory, made where they are not there; `say` is told what
    is left out, `note` what those of `Tables.sidecars` lack. Raises PerfError without any.
    """
    source = Source(files_of(directory, say), say)
    source.about()
    for kind in all_tables().sidecars:
        source.sidecars(kind, note)
    return [*source.sealed.values()]
