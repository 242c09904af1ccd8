"""A session of calls as the engine that predicts changes of it takes it: fewer calls, fewer bytes, another
way for them, and any stage longer or shorter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from flagscale_perf.analysis.compare.compare import NOISE
from flagscale_perf.analysis.flows import Made, Outcomes
from flagscale_perf.analysis.predictions import (
    Change,
    Check,
    Doubt,
    MissingRecordError,
    Offer,
    Prediction,
    factor_of,
    offered,
)
from flagscale_perf.analysis.replays import Engine, Predicts, engine
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Drawn
from flagscale_perf.rpc.analysis.columns import calls_in
from flagscale_perf.rpc.analysis.costs import SHARED_COPIES, SMALL_BYTES, CallCost, Costs
from flagscale_perf.rpc.analysis.flow import PHASES, CallsFlow, flow_of
from flagscale_perf.rpc.analysis.report import read_calls
from flagscale_perf.rpc.analysis.source import open_source
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError

MOST_CALLS = 16_384  # of a session that are replayed, its first: some seconds
CALLS, BYTES, TRANSPORT, SHARED = "calls", "bytes", "transport", "shm"
_CARRIED = ("serialize", "send", "wait", "receive", "deserialize")
_OTHERS = ("server", "queue", "between", "other")
_A_FACTOR = "=FACTOR, such as 0.5"
CHECKS: Mapping[str, Check] = {
    CALLS: ("A", factor_of, f"{_A_FACTOR}: the same bytes in half as many calls"),
    BYTES: ("A", factor_of, f"{_A_FACTOR}: of all arrays"),
    TRANSPORT: ("A", lambda value: value if value == SHARED else None, f"={SHARED}: shared memory"),
}


_NO_DOUBT, _NONE = Doubt(), dict[str, Mapping[int, float]]()


class ChangeableCalls:
    """One session of calls, which predicts itself.

    Attributes:
        phases, checks: what may be changed.
        of, perfect: what a prediction is of, and its ceiling.
    """

    phases: Mapping[str, tuple[int, ...]] = PHASES
    checks: Mapping[str, Check] | None = CHECKS
    of, perfect = "session of the same work", "calls were carried in no time"

    def __init__(self, session: Session) -> None:
        """Reads it once."""
        self._session, report = session, read_calls(session)
        self._facts, self._costs = report.facts, Costs(report)
        self._is_shared = report.is_shared
        calls, source = list[CallRecord](), open_source(session)
        for columns in source.read(calls.clear):
            calls += calls_in(columns, 0, MOST_CALLS - len(calls))
        count, starts = report.overall.calls, source.starts_known
        whole = (
            f"{len(calls):,} calls" if len(calls) == count else f"the first {len(calls):,} of {count:,} calls"
        )
        self._known = flow_of(calls, starts, whole)

    def replays(self) -> ChangeableCalls:
        """Itself."""
        return self

    def predict(
        self,
        changes: Sequence[Change],
        doubt: Doubt = _NO_DOUBT,
        beside: Sequence[Predicts] = (),
        operators: Mapping[str, Mapping[int, float]] = _NONE,
    ) -> Prediction:
        """The session after these changes. Raises MissingRecordError, PerfError for what is impossible."""
        del operators
        found = engine()
        if found is None or beside:
            raise PerfError(
                "--beside is of a training" if beside else "the room `whatif` is not installed here"
            )
        flow = self._known.flow
        base = found.made_of(flow)
        for change in changes:
            if change.name not in CHECKS:
                base = found.resized(flow, base, change, self.phases)
        told = {change.name: change for change in changes if change.name in CHECKS}
        ways = self._ways(told) if told else []
        likely, *others = [_carried(self._known, base, way) for way in ways] or [base]
        return found.predict(flow, changes, Outcomes(likely, others, self._perfect(found, base)), doubt)

    def _ways(self, told: Mapping[str, Change]) -> list[_Way]:
        """What the changes save of a call: most likely, and by each cost that explains the calls."""
        if not self._costs.costs:
            why = "; ".join(self._costs.unknown) or "these calls' times do not follow from their bytes"
            raise MissingRecordError(
                " ".join(change.text for change in told.values()),
                f"calls that tell what they and their bytes cost: {why}",
                "a session whose client gets the server's times in its replies (RpcRecorder)",
            )
        calls, size = (float(told[name].value) if name in told else 1.0 for name in (CALLS, BYTES))
        copies = self._copies_ns(told[TRANSPORT]) if TRANSPORT in told else [None]
        middle = None if copies[0] is None else sum(filter(None, copies)) / len(copies)
        costs = self._costs.costs
        return [
            partial(_saved_ns, cost=cost, calls=calls, size=size, copy_ns=copy_ns)
            for cost, copy_ns in [(costs[-1], middle), *((cost, copy) for cost in costs for copy in copies)]
        ]

    def _copies_ns(self, change: Change) -> list[float | None]:
        known = self._facts.copy_bytes_per_s
        if self._is_shared:
            raise PerfError(f"{change.text!r}: these calls' arrays are in shared memory already")
        if not known:
            raise MissingRecordError(
                change.text,
                "how fast this machine copies",
                "a session of this version's RpcRecorder or Probe",
            )
        return [copies * NS_PER_S / known for copies in SHARED_COPIES]

    def _perfect(self, found: Engine, base: Made) -> Made:
        flow = self._known.flow
        for name in _CARRIED:
            base = found.resized(flow, base, Change(name, "=", "0", "", "A"), self.phases)
        return base

    def items(self, changes: Sequence[Change]) -> Iterable[Drawn]:
        """Nothing: only steps of a training are drawn."""
        raise PerfError(f"--trace draws steps of a training, and none with {changes[0].text!r}")

    def drift(self) -> tuple[float, str]:
        """What `compare` assumes between two sessions."""
        return NOISE, "assumed for sessions on a machine that others use, too"

    def usual_ns(self, text: str) -> float:
        """From the first call's start to the last one's end."""
        del text
        flow = self._known.flow
        return float(max(flow.lanes[lane][at].end_ns for lane, at in flow.units) - min(flow.begins_ns))

    def flag_of(self, change: Change) -> str:
        """None: calls are the application's own."""
        del change
        return ""

    def missing(self, change: Change) -> str | None:
        """The record without which the change has no answer; None where there are all."""
        try:
            self.predict([change])
        except MissingRecordError as error:
            return error.record
        return None

    def rates(self, prediction: Prediction) -> Mapping[str, float]:
        """Calls, as they were recorded, a second of the predicted session."""
        return {"calls/s": prediction.steps * NS_PER_S / max(1.0, prediction.predicted_ns)}

    def best(self, doubt: Doubt) -> Sequence[Offer]:
        """The changes that gain the most, the best first."""
        return sorted(self._tried(doubt), key=lambda one: -one.gain)[:10]

    def _tried(self, doubt: Doubt) -> Iterator[Offer]:
        tried = [Change(name, "=", "0.5", "", "A") for name in (CALLS, BYTES)]
        tried.append(Change(TRANSPORT, "=", SHARED, "", "A"))
        tried += [Change(name, "*=", "0.5", "", "A") for name in (*_CARRIED, *_OTHERS)]
        for change in tried:
            try:
                found = self.predict([change], doubt)
            except PerfError:  # what has no answer here is no advice
                continue
            if found.gain_ns > 0:
                yield offered(found, "")


_Way = partial[float]


def _carried(known: CallsFlow, base: Made, way: _Way) -> Made:
    return known.shorter(base, way)


def _saved_ns(call: CallRecord, cost: CallCost, calls: float, size: float, copy_ns: float | None) -> float:
    """What a call saves with so many calls and bytes of one, and where a byte is copied in `copy_ns` ns."""
    of_bytes = cost.of_bytes(call.sent_bytes, call.received_bytes)
    left = of_bytes * size
    if copy_ns is not None and call.moved_bytes > SMALL_BYTES:
        left = min(left, copy_ns * call.moved_bytes * size)
    return cost.fixed_ns * (1 - calls) + of_bytes - left
