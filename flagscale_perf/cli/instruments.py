"""Every instrument, and which of them wrote a run file: the only place that knows them all."""

from __future__ import annotations

import importlib
import importlib.util
import os
from pathlib import Path

from flagscale_perf.analysis.export import Export
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.run_file import RunFile, open_regular, sessions_in
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import file_names

# Folder of the package, as run files name it -> module with its `INSTRUMENT`. The folder's module `records`
# registers its record types.
INSTRUMENTS = {
    "training": "flagscale_perf.training.analysis.instrument",
    "rpc": "flagscale_perf.rpc.analysis.instrument",
}
# Instruments that can be exported to formats of other systems -> module with these `EXPORTS`.
EXPORTS = {"trace": "flagscale_perf.trace.export.formats"}
# How a log begins that an instrument reads without a run file beside it.
LOGS = {b"ZeroMQ Performance Log": "rpc"}
FIRST = "training"  # whose first files have no name in their header


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
    module = EXPORTS.get(header.instrument or FIRST)
    exports: dict[str, Export] = {} if module is None else importlib.import_module(module).EXPORTS
    return exports


def instrument_of(header: RunHeader) -> Instrument:
    """The one that wrote the file with this header."""
    return load(getattr(header, "instrument", FIRST))


def instrument_for(path: Path) -> Instrument:
    """The one that wrote the run file, or the log. Raises PerfError if it is neither."""
    with os.fdopen(open_regular(path), "rb") as file:
        begin = file.read(max(map(len, LOGS)))
    name = next((LOGS[title] for title in LOGS if begin.startswith(title)), None)
    return load(name) if name is not None else instrument_of(RunFile(path).header)


def instrument_in(directory: Path) -> Instrument:
    """The one that wrote the newest readable run file. Raises PerfError where the directory has no file."""
    for session_id in reversed(sessions_in(directory)):
        try:
            return instrument_for(directory / file_names(session_id)["records"])
        except PerfError:  # a damaged file is reported by what reads all of them
            continue
    return load(FIRST)
