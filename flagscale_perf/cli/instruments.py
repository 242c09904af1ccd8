"""Tells which instrument wrote a run file or a log."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from flagscale_perf.analysis.instrument import Export, Instrument, installed, load
from flagscale_perf.analysis.log_files import has_mark, has_title, log_files
from flagscale_perf.analysis.run_file import (
    RunFile,
    check_instrument,
    find_run_file,
    sessions_in,
)
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import file_names, session_of

# Instruments that can be exported to formats of other systems -> module with these `EXPORTS`.
EXPORTS = {"trace": "flagscale_perf.trace.export.formats"}
# How a log is known that an instrument reads without a run file beside it: this stands in its first lines, or
# somewhere in it, among anybody's lines. Of those of the second kind there may be whole directories.
LOGS = {b"ZeroMQ Performance Log": "rpc"}
MARKS = {b"[TQ-TRACE] ": "trace", b"[TQ-DETAIL] ": "trace"}
_KINDS = {"rpc": "a session of calls", "bench": "a file of experiments"}  # what "a NAME" does not say
FIRST = "training"  # taken where nothing says which instrument it is


def load_records() -> None:
    """Registers the record types of every instrument, so that any run file can be read."""
    for name in installed():
        importlib.import_module(f"flagscale_perf.{name}.records")


def exports_of(header: RunHeader) -> dict[str, Export]:
    """Formats of other systems, by name, that the file with this header can be written in."""
    module = EXPORTS.get(header.instrument)
    exports: dict[str, Export] = {} if module is None else importlib.import_module(module).EXPORTS
    return exports


def has_screen(header: RunHeader) -> bool:
    """Whether `watch` can show the session with this header."""
    try:
        return load(header.instrument).has_screen
    except PerfError:  # of a newer version
        return False


def instrument_for(path: Path) -> Instrument:
    """The one that wrote the run file, the log, or the directory's logs. Raises PerfError without one."""
    return load(instrument_name(path))


def instrument_name(path: Path) -> str:
    """Its name. Raises PerfError for what is no run file and no log."""
    if path.is_dir():
        return _marked(path) or FIRST
    name = next((LOGS[title] for title in LOGS if has_title(path, title)), None)
    if name is None and session_of(path.name) is None:
        name = _marked(path)
    return name or RunFile(path).header.instrument


def same_instrument(paths: Sequence[Path]) -> Instrument:
    """The one that wrote all of them. Raises PerfError where it is not one."""
    names = list(map(instrument_name, paths))
    for path, name in zip(paths, names, strict=True):
        if name != names[0]:
            what, first = (_KINDS.get(each, f"a {each}") for each in (name, names[0]))
            raise PerfError(
                f"{str(path)!r} is {what}, and {str(paths[0])!r} is {first}; name run files of one instrument"
            )
    return load(names[0])


def run_file_of(run: Path, instrument: str) -> Path:
    """The run file that a path means. Raises PerfError where there is none of this instrument."""
    path = find_run_file(run)
    check_instrument(path, RunFile(path).header, instrument, "give its directory to `flagscale-perf report`")
    return path


def run_or_logs(path: Path, session_id: str | None = None) -> Path:
    """The file or directory that a path means: a run file as `find_run_file` finds it or, if there is none, a
    log or a directory of logs that an instrument reads. Raises PerfError.
    """
    return path if session_id is None and has_logs(path) else find_run_file(path, session_id)


def has_logs(path: Path) -> bool:
    """Whether it is a directory without a run file in which lie logs that an instrument reads."""
    if not path.is_dir():
        return False
    return not any(map(session_of, os.listdir(path))) and _marked(path) is not None


def _marked(path: Path) -> str | None:
    """The instrument whose lines stand in the log, or in one of the directory's."""
    try:
        files = log_files(path)
    except PerfError:
        return None
    return next((MARKS[mark] for file in files for mark in MARKS if has_mark(file, mark)), None)


def say_others(asked: Path, shown: Path) -> None:
    """Names on stderr the newest session of each other instrument in the directory asked for."""
    if not asked.is_dir() or shown.parent != asked:
        return
    newest: dict[str, str] = {}
    known = {*installed()} - {RunFile(shown).header.instrument}
    for session_id in sessions_in(asked):
        with contextlib.suppress(PerfError):  # damaged
            name = RunFile(asked / file_names(session_id)["records"]).header.instrument
            newest |= {name: session_id} if name in known else {}
    for name, session_id in newest.items():
        line = f"the {name} session {session_id} is here, too; --session {session_id} shows it"
        print(line, file=sys.stderr, flush=True)


def instrument_in(directory: Path) -> Instrument:
    """The one that wrote the newest readable run file. Raises PerfError where the directory has no file."""
    for session_id in reversed(sessions_in(directory)):
        try:
            return instrument_for(directory / file_names(session_id)["records"])
        except PerfError:  # a damaged file is reported by what reads all of them
            continue
    return load(FIRST)
