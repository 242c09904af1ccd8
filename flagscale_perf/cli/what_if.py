"""`flagscale-perf what-if`: what changes would bring a run, from its own captured steps."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.job import Job, open_session
from flagscale_perf.analysis.offers import table_of
from flagscale_perf.analysis.replays import Replayable
from flagscale_perf.analysis.session import Session
from flagscale_perf.cli.base import Command, add_instrument, add_run, add_session, local_path, percentage
from flagscale_perf.cli.instruments import say
from flagscale_perf.cli.predicting import MS, as_dict, engine_here, lines_of
from flagscale_perf.report.text import alone
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump

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
        found = engine_here()
        from flagscale_perf.whatif import ledger  # needs numpy

        session = Job(args.run, args.session).whole(args.instrument).lead
        own: Replayable = load(session.instrument).replayable(session)
        directory = session.path.parent
        if args.check is not None:
            return _check(args, session, own)
        noise = None if args.noise is None else (args.noise, "--noise")
        doubt = ledger.doubt(directory, noise or own.drift())
        if not args.changes:
            offers = own.best(doubt)
            print(dump([asdict(one) for one in offers]) if args.json else alone(table_of(offers, own.of)))
            return 0
        changes = found.changes(args.changes, own.phases, own.checks)
        beside = [load(one.instrument).replayable(one).replays() for one in map(open_session, args.beside)]
        shares = _shares(args.run) if any(change.kind == "C" for change in changes) else {}
        prediction = own.replays().predict(changes, doubt, beside, shares)
        path = ledger.enter(directory, session.path.name, prediction)
        if args.trace is not None:
            from flagscale_perf.cli.trace_export import put_items  # another command's

            put_items(session, own.items(changes), args.trace)
        if args.json:
            print(dump(as_dict(prediction, own)))
        else:
            print("\n".join(lines_of(prediction, changes, own)))
            say(f"entered into {path}; --check NEWRUN will say whether it held")
        return 0


def _shares(run: Path) -> Mapping[str, Mapping[int, float]]:
    """What the newest profile of the run's directory tells of operators; nothing without one."""
    for name in installed():
        instrument = load(name)
        if instrument.offers("shares"):
            session = open_session(run, instrument=name)
            return instrument.shares(session) if session.instrument == name else {}
    return {}


def _with_change(path: Path, session: Session, own: Replayable, text: str) -> Replayable:
    """The run that checks a prediction. Raises PerfError where it is not this one with the change."""
    new = Job(path).whole(session.instrument).lead
    if set(new.paths) & set(session.paths):
        raise PerfError(f"--check {str(path)!r} is the run itself; give one that was made with {text}")
    found: Replayable = load(new.instrument).replayable(new)
    has = found.shape([])
    for name, value in own.shape(engine_here().changes([text], own.phases, own.checks)).items():
        if value is not None and has.get(name) not in (value, None):
            raise PerfError(
                f"--check {str(path)!r} is no run with {text}: its {name} is {has[name]}, and not {value}"
            )
    return found


def _check(args: Namespace, session: Session, own: Replayable) -> int:
    from flagscale_perf.whatif import ledger

    words = engine_here().changes(args.changes, own.phases, own.checks)
    text = " ".join(change.text for change in words)
    known = [entry for entry in ledger.entries(session.path.parent) if entry.outcome_ns is None]
    right = [entry for entry in known if not text or entry.content["change"] == text]
    texts = sorted({entry.content["change"] for entry in right})
    if len(texts) != 1:
        listed = "; ".join(sorted({entry.content["change"] for entry in known})) or "none"
        raise PerfError(f"--check: name the prediction that NEWRUN checks; those not yet checked: {listed}")
    outcome_ns = _with_change(args.check, session, own, texts[0]).usual_ns(texts[0])
    entry = ledger.check(right[-1], str(args.check), outcome_ns)
    low, high, off = (entry.content[name] / MS for name in ("low_ns", "high_ns", "predicted_ns"))
    if args.json:
        print(dump({**entry.content, "outcome_ns": outcome_ns, "hit": entry.is_hit}))
    else:
        word, within = "hit" if entry.is_hit else "MISS", f"{off:.1f} ms [{low:.1f}, {high:.1f}]"
        print(f"{word}: {texts[0]}: {outcome_ns / MS:.1f} ms; predicted {within}")
    return 0
