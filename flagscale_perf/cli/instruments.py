"""Every instrument, and which of them wrote a run file: the only place that knows them all."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from flagscale_perf.analysis.export import Export
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.log_files import has_mark, log_files
from flagscale_perf.analysis.run_file import RunFile, find_run_file, open_regular, sessions_in
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import file_names, session_of

# Folder of the package, as run files name it -> module with its `INSTRUMENT`. The folder's module `records`
# registers its record types.
INSTRUMENTS = {
    "training": "flagscale_perf.training.analysis.instrument",
    "rpc": "flagscale_perf.rpc.analysis.instrument",
    "trace": "flagscale_perf.trace.analysis.instrument",
    "profile": "flagscale_perf.profile.analysis.instrument",
    "bench": "flagscale_perf.bench.analysis.instrument",
}
# Instruments that can be exported to formats of other systems -> module with these `EXPORTS`.
EXPORTS = {"trace": "flagscale_perf.trace.export.formats"}
# How a log is known that an instrument reads without a run file beside it: it begins so, or this stands in it
# somewhere, among anybody's lines. Those of the second kind may be compressed, and whole directories of them.
LOGS = {b"ZeroMQ Performance Log": "rpc"}
MARKS = {b"[TQ-TRACE] ": "trace", b"[TQ-DETAIL] ": "trace"}
FIRST = "training"  # taken where nothing says which instrument it is


def load_records() -> None:
    """Registers the record types of every instrument that is installed, so that any run file can be read."""
    for name in INSTRUMENTS:
        if importlib.util.find_spec(f"flagscale_perf.{name}") is not None:
            importlib.import_module(f"flagscale_perf.{name}.records")


def load(name: str) -> Instrument:
    """The instrument of that name, its modules imported now. Raises PerfError for one that is not there."""
    if name not in INSTRUMENTS:
        known = ", ".join(INSTRUMENTS)
        raise PerfError(
            f"the instrument {name!r} is not known; this version has {known}: update flagscale_perf"
        )
    instrument: Instrument = importlib.import_module(INSTRUMENTS[name]).INSTRUMENT
    return instrument


def exports_of(header: RunHeader) -> dict[str, Export]:
    """Formats of other systems, by name, that the file with this header can be written in."""
    module = EXPORTS.get(header.instrument)
    exports: dict[str, Export] = {} if module is None else importlib.import_module(module).EXPORTS
    return exports


def instrument_of(header: RunHeader) -> Instrument:
    """The one that wrote the file with this header."""
    return load(header.instrument)


def has_screen(header: RunHeader) -> bool:
    """Whether `watch` can show the session with this header."""
    try:
        return instrument_of(header).has_screen
    except PerfError:  # of a newer version
        return False


def is_training(header: RunHeader) -> bool:
    """Whether it is a training's."""
    return header.instrument == FIRST


def instrument_for(path: Path) -> Instrument:
    """The one that wrote the run file, the log, or the logs of the directory. Raises PerfError if it is none
    of these.
    """
    if path.is_dir():
        name = _marked(path)
        return load(name or FIRST)
    with os.fdopen(open_regular(path), "rb") as file:
        begin = file.read(max(map(len, LOGS)))
    name = next((LOGS[title] for title in LOGS if begin.startswith(title)), None)
    if name is None and session_of(path.name) is None:
        name = _marked(path)
    return load(name) if name is not None else instrument_of(RunFile(path).header)


def run_or_logs(path: Path, session_id: str | None = None) -> Path:
    """What is meant by a path: a run file as `find_run_file` finds it, or, where there is none, a log or a
    directory of logs that an instrument reads. Raises PerfError.
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


def others_in(directory: Path, shown: Path) -> dict[str, str]:
    """Instruments that have other run files in the directory than the one that is shown, each with its newest
    session: one run may be watched by several.
    """
    own, found = instrument_of(RunFile(shown).header), {}
    for session_id in sessions_in(directory):
        try:
            header = RunFile(directory / file_names(session_id)["records"]).header
            instrument = instrument_of(header)
        except PerfError:  # damaged, or of a newer version
            continue
        if instrument is not own:
            found[header.instrument] = session_id
    return found


def say_others(asked: Path, shown: Path) -> None:
    """Tells the user on stderr what else is in the directory asked for than the run file shown."""
    if asked.is_dir() and shown.parent == asked:
        for name, session_id in others_in(asked, shown).items():
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
