"""`flagscale-perf what-if`: what changes would bring a run, from its own captured steps."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.offers import table_of
from flagscale_perf.analysis.predictions import Change, Prediction
from flagscale_perf.analysis.replays import Engine, Replayable, engine
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import Command, add_instrument, add_run, add_session, local_path, percentage
from flagscale_perf.cli.instruments import say
from flagscale_perf.cli.trace_export import put_items
from flagscale_perf.report.text import alone
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.packages import missing

_MS = 1e6
_EPILOG = (
    "changes: rank=3 forward=peers, m=16, pp=4 layers=6,6,6,4, work=equal, data_loading=0, p2p*=0.5;"
    " of calls: calls=0.5, bytes=0.5, transport=shm, server*=0.5; of a queue: units=+1, producers=x2"
)


class WhatIfCommand(Command):
    """Predicts what changes would bring a run, each prediction with its interval."""

    is_intermixed = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, the changes, a run that checks an earlier prediction."""
        add = parser.add_argument
        parser.epilog = _EPILOG
        add_run(parser)
        add("changes", nargs="*", metavar="CHANGE", help="see below; without any, the ten that gain the most")
        add("--check", type=local_path, metavar="NEWRUN", help="a run with these changes: was it predicted?")
        add(
            "--noise",
            type=percentage,
            metavar="PERCENT",
            help="standard deviation to assume between usual steps of two runs of one configuration",
        )
        add(
            "--with",
            dest="beside",
            type=local_path,
            action="append",
            default=[],
            metavar="RUN",
            help="a run of another layout, which tells what a layer or a message takes; may be repeated",
        )
        add("--json", action="store_true", help="as JSON")
        about = "draw a usual step of every rank, recorded and predicted: NAME.json or NAME.pftrace"
        add("--trace", type=local_path, metavar="FILE", help=about)
        add_session(parser)
        add_instrument(parser)

    def run(self, args: Namespace) -> int:
        """Raises PerfError for a change that means nothing, is impossible, or has no answer."""
        found = _engine()
        from flagscale_perf.whatif import ledger  # needs numpy

        session = open_session(args.run, args.session, args.instrument)
        own: Replayable = load(session.instrument).replayable(session)
        directory = session.path.parent
        if args.check is not None:
            return _check(args, own, directory)
        noise = None if args.noise is None else (args.noise, "--noise")
        doubt = ledger.doubt(directory, noise or own.drift())
        if not args.changes:
            offers = own.best(doubt)
            print(dump([asdict(one) for one in offers]) if args.json else alone(table_of(offers)))
            return 0
        changes = found.changes(args.changes, own.phases, own.checks)
        beside = [load(one.instrument).replayable(one).replays() for one in map(open_session, args.beside)]
        shares = _shares(args.run) if any(change.kind == "C" for change in changes) else {}
        prediction = own.replays().predict(changes, doubt, beside, shares)
        path = ledger.enter(directory, session.path.name, prediction)
        if args.trace is not None:
            put_items(session, own.items(changes), args.trace)
        if args.json:
            print(dump(as_dict(prediction, own)))
        else:
            print("\n".join(_lines_of(prediction, changes, own)))
            say(f"entered into {path}; --check NEWRUN will say whether it held")
        return 0


def answer(session: Session, words: Sequence[str]) -> list[str]:
    """What `what-if RUN CHANGE` prints; the prediction is not entered. Raises PerfError as that."""
    found, directory = _engine(), session.path.parent
    own: Replayable = load(session.instrument).replayable(session)
    changes = found.changes(words, own.phases, own.checks)
    return _lines_of(own.replays().predict(changes, found.doubt(directory, own.drift())), changes, own)


def _lines_of(prediction: Prediction, changes: Sequence[Change], own: Replayable) -> list[str]:
    flags = [flag for change in changes if (flag := own.flag_of(change))]
    return [*_lines(prediction, own, flags)]


def _engine() -> Engine:
    try:
        found = engine()
    except ImportError as error:
        raise missing("numpy", error, "what-if") from None
    if found is None:
        raise PerfError("what-if needs the room `whatif` of flagscale_perf, which is not installed here")
    return found


def _shares(run: Path) -> Mapping[str, Mapping[int, float]]:
    """What the newest profile of the run's directory tells of operators; nothing without one."""
    for name in installed():
        instrument = load(name)
        if instrument.offers("shares"):
            session = open_session(run, instrument=name)
            return instrument.shares(session) if session.instrument == name else {}
    return {}


def _check(args: Namespace, own: Replayable, directory: Path) -> int:
    from flagscale_perf.whatif import ledger

    words = _engine().changes(args.changes, own.phases, own.checks)
    text = " ".join(change.text for change in words)
    known = [entry for entry in ledger.entries(directory) if entry.outcome_ns is None]
    right = [entry for entry in known if not text or entry.content["change"] == text]
    texts = sorted({entry.content["change"] for entry in right})
    if len(texts) != 1:
        listed = "; ".join(sorted({entry.content["change"] for entry in known})) or "none"
        raise PerfError(f"--check: name the prediction that NEWRUN checks; those not yet checked: {listed}")
    new = open_session(args.check, None, args.instrument)
    outcome_ns = load(new.instrument).replayable(new).usual_ns(texts[0])
    entry = ledger.check(right[-1], str(args.check), outcome_ns)
    low, high, off = (entry.content[name] / _MS for name in ("low_ns", "high_ns", "predicted_ns"))
    if args.json:
        print(dump({**entry.content, "outcome_ns": outcome_ns, "hit": entry.is_hit}))
    else:
        word, within = "hit" if entry.is_hit else "MISS", f"{off:.1f} ms [{low:.1f}, {high:.1f}]"
        print(f"{word}: {texts[0]}: {outcome_ns / _MS:.1f} ms; predicted {within}")
    return 0


def as_dict(prediction: Prediction, own: Replayable) -> Mapping[str, Any]:
    """What --json prints of a prediction."""
    found = {**prediction._asdict(), "gain_ns": prediction.gain_ns, "is_gain": prediction.is_gain}
    return {**found, "rates": dict(own.rates(prediction))}


def _lines(one: Prediction, own: Replayable, flags: list[str]) -> Iterator[str]:
    yield f"{one.text}  (class {one.kind})"
    yield f"measured   {one.measured_ns / _MS:10.1f} ms a {own.of}; {one.evidence}"
    interval = f"[{one.low_ns / _MS:.1f}, {one.high_ns / _MS:.1f}]"
    yield f"predicted  {one.predicted_ns / _MS:10.1f} ms, 95 of 100 times within {interval}"
    share = one.gain_ns / (one.samples * one.measured_ns)
    word = "" if one.is_gain else "  no gain that is sure"
    per = "" if one.samples == 1 else f" for {one.samples:g} times the samples"
    gain = f"{one.gain_ns / _MS:10.1f} ms +- {one.gain_half_ns / _MS:.1f} ({100 * share:+.1f} %)"
    yield f"gain       {gain}{per}{word}"
    yield "interval   " + ", ".join(f"{name} {ns / _MS:.1f}" for name, ns in one.parts.items()) + " ms"
    if one.ceiling_ns is not None:
        yield f"ceiling    {one.ceiling_ns / _MS:10.1f} ms, if {own.perfect}"
    for name, value in own.rates(one).items():
        yield f"{name:10} {value:10,.1f}"
    if flags:
        yield f"host       {'; '.join(flags)}"
    hits, checks = one.checked
    yield f"checked    {f'{hits} of {checks} of this class held' if checks else 'not yet checked here'}"
    yield from (f"note       {note}" for note in one.notes)
