"""A prediction in words, for the commands that ask for one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.predictions import offered
from flagscale_perf.analysis.replays import Change, Engine, Prediction, Replayable, engine
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

MS = 1e6  # nanoseconds


def answer(session: Session, words: Sequence[str]) -> list[str]:
    """What `what-if RUN CHANGE` prints; the prediction is not entered. Raises PerfError as that."""
    found, directory = engine_here(), session.path.parent
    own: Replayable = load(session.instrument).replayable(session)
    changes = found.changes(words, own.phases, own.checks)
    return lines_of(own.replays().predict(changes, found.doubt(directory, own.drift())), changes, own)


def lines_of(prediction: Prediction, changes: Sequence[Change], own: Replayable) -> list[str]:
    """What is printed of a prediction."""
    flags = [flag for change in changes if (flag := own.flag_of(change))]
    return [*_lines(prediction, own, flags)]


def engine_here() -> Engine:
    """The engine. Raises PerfError where numpy or its room is not there."""
    try:
        found = engine()
    except ImportError as error:
        raise missing("numpy", error, "what-if") from None
    if found is None:
        raise PerfError("what-if needs the room `whatif` of flagscale_perf, which is not installed here")
    return found


def as_dict(prediction: Prediction, own: Replayable) -> Mapping[str, Any]:
    """What --json prints of a prediction."""
    found = {**prediction._asdict(), "gain_ns": prediction.gain_ns, "is_gain": prediction.is_gain}
    return {**found, "rates": dict(own.rates(prediction))}


def _lines(one: Prediction, own: Replayable, flags: list[str]) -> Iterator[str]:
    yield f"{one.text}  (class {one.kind})"
    yield f"measured   {one.measured_ns / MS:10.1f} ms a {own.of}; {one.evidence}"
    interval = f"[{one.low_ns / MS:.1f}, {one.high_ns / MS:.1f}]"
    yield f"predicted  {one.predicted_ns / MS:10.1f} ms, 95 of 100 times within {interval}"
    share = one.gain_ns / (one.samples * one.measured_ns)
    word = "" if one.is_gain else "  no gain that is sure"
    if one.gain_ns < -one.gain_half_ns:
        word = "  a loss"
    per = "" if one.samples == 1 else f" for {one.samples:g} times the samples"
    gain = f"{one.gain_ns / MS:10.1f} ms +- {one.gain_half_ns / MS:.1f} ({100 * share:+.1f} %)"
    yield f"gain       {gain}{per}{word}"
    yield f"throughput {100 * offered(one, '').gain:+10.1f} %"
    yield "interval   " + ", ".join(f"{name} {ns / MS:.1f}" for name, ns in one.parts.items()) + " ms"
    if one.ceiling_ns is not None:
        yield f"ceiling    {one.ceiling_ns / MS:10.1f} ms, if {own.perfect}"
    for name, value in own.rates(one).items():
        yield f"{name:10} {value:10,.1f}"
    if flags:
        yield f"host       {'; '.join(flags)}"
    hits, checks = one.checked
    yield f"checked    {f'{hits} of {checks} of this class held' if checks else 'none of this class yet'}"
    yield from (f"note       {note}" for note in one.notes)
