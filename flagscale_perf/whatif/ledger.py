"""`predictions.jsonl`: every prediction, one line each, and what became of it."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.analysis.replays import Doubt, Prediction
from flagscale_perf.spine import files
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.store import cache
from flagscale_perf.whatif.intervals import EXPECTED

NAME = "predictions.jsonl"
MAX_BYTES, MAX_FILES, MAX_NS = 64 << 20, 64, 1e18
_APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND
_NUMBERS = ("time_s", "measured_ns", "predicted_ns", "low_ns", "high_ns", "plain_ns")


class Entry(NamedTuple):
    """A prediction that was made.

    Attributes:
        path: of the file that it is in.
        place: among the predictions of the file, from 0 on.
        content: of its line.
        outcome_ns: None until it was checked.
        is_hit: whether the interval held the outcome.
    """

    path: Path
    place: int
    content: Mapping[str, Any]
    outcome_ns: float | None
    is_hit: bool


def enter(directory: Path, run: str, prediction: Prediction) -> Path:
    """Adds the prediction for a run in this directory. Returns the file. Raises PerfError."""
    line = {"time_s": round(time.time(), 3), "run": run, "change": prediction.text, "kind": prediction.kind}
    numbers = {name: getattr(prediction, name) for name in (*_NUMBERS[1:], "parts", "steps")}
    return _append(directory, {**line, **numbers})


def check(entry: Entry, new_run: str, outcome_ns: float) -> Entry:
    """Enters what became of a prediction. Raises PerfError."""
    low_ns, high_ns = entry.content["low_ns"], entry.content["high_ns"]
    is_hit = low_ns <= outcome_ns <= high_ns
    line = {"time_s": round(time.time(), 3), "of": entry.place, "new_run": new_run, "outcome_ns": outcome_ns}
    _write(entry.path, {**line, "hit": is_hit})
    return entry._replace(outcome_ns=outcome_ns, is_hit=is_hit)


def entries(directory: Path) -> list[Entry]:
    """All predictions for runs in this directory, the oldest first; lines that are none are passed over."""
    return [entry for path in _paths(directory) for entry in _read(path)]


def scores(known: Sequence[Entry]) -> Mapping[str, Sequence[tuple[float, bool]]]:
    """By kind, of those that were checked, what `Doubt` says."""
    found: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for entry in known:
        if entry.outcome_ns is not None:
            said = entry.content
            off_ns = abs(entry.outcome_ns - said["predicted_ns"])
            found[said["kind"]].append((off_ns / max(1.0, said["plain_ns"]), entry.is_hit))
    return found


def doubt(directory: Path, drift: tuple[float, str]) -> Doubt:
    """What is known of predictions of runs in this directory, by how those of runs nearby turned out, too."""
    near = {*directory.parent.glob(f"*/{NAME}"), *directory.parent.parent.glob(f"*/{directory.name}/{NAME}")}
    others = [path for path in sorted(near) if path.parent != directory][:MAX_FILES]
    known = [*entries(directory), *(entry for path in others for entry in _read(path))]
    return Doubt(*drift, scores(known))


def _paths(directory: Path) -> list[Path]:
    return [directory / NAME, *(place.path / NAME for place in [*cache.places(directory)][1:])]


def _append(directory: Path, line: Mapping[str, Any]) -> Path:
    for path in _paths(directory):
        with contextlib.suppress(PerfError):
            _write(path, line)
            return path
    raise PerfError(f"cannot write {NAME} in {str(directory)!r}: run this as a user who may write there")


def _write(path: Path, line: Mapping[str, Any]) -> None:
    try:
        if not path.parent.exists():
            path.parent.mkdir(parents=True, mode=0o700)
        with os.fdopen(files.open_regular(path, _APPEND | files.NOFOLLOW), "ab", buffering=0) as file:
            torn = file.tell() > 0 and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n"
            file.write(b"\n" * torn + dump(line).encode() + b"\n")
    except OSError as error:
        raise PerfError(f"cannot write {str(path)!r}: {error.strerror}") from None


def _read(path: Path) -> Iterator[Entry]:
    found: list[Entry] = []
    for line in _lines(path):
        if _is_prediction(line):
            found.append(Entry(path, len(found), line, None, False))
        elif _is_outcome(line) and line["of"] < len(found):
            found[line["of"]] = found[line["of"]]._replace(
                outcome_ns=float(line["outcome_ns"]), is_hit=line["hit"]
            )
    return iter(found)


def _lines(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with os.fdopen(files.open_regular(path, os.O_RDONLY | files.NOFOLLOW), "rb") as file:
            content = file.read(MAX_BYTES)
    except OSError:
        return
    for line in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            read = json.loads(line)
            if isinstance(read, dict):
                yield read


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NS


def _is_prediction(line: Mapping[str, Any]) -> bool:
    parts = line.get("parts")
    return (
        all(_is_number(line.get(name)) for name in _NUMBERS)
        and isinstance(parts, dict)
        and all(map(_is_number, parts.values()))
        and all(isinstance(line.get(name), str) for name in ("change", "run"))
        and line.get("kind") in EXPECTED
    )


def _is_outcome(line: Mapping[str, Any]) -> bool:
    of = line.get("of")
    return (
        type(of) is int and of >= 0 and _is_number(line.get("outcome_ns")) and type(line.get("hit")) is bool
    )
