"""A session of calls as the engine that predicts changes of it takes it: fewer calls, fewer bytes, another
way for them, and any stage longer or shorter.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence

from flagscale_perf.analysis.changeable import ChangeableFlow
from flagscale_perf.analysis.flows import Flow, Made, Outcomes
from flagscale_perf.analysis.predictions import (
    Change,
    Check,
    MissingRecordError,
    Prediction,
    factor_of,
)
from flagscale_perf.analysis.replays import Engine
from flagscale_perf.analysis.session import Session
from flagscale_perf.rpc.analysis.columns import calls_in
from flagscale_perf.rpc.analysis.costs import Costs, Way
from flagscale_perf.rpc.analysis.flow import PHASES, flow_of
from flagscale_perf.rpc.analysis.report import read_calls
from flagscale_perf.rpc.analysis.source import open_source
from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.spine.averages import mean
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.errors import PerfError

MOST_CALLS = 16_384  # of a session that are replayed, its first: some seconds
CALLS, BYTES, TRANSPORT, SHARED = "calls", "bytes", "transport", "shm"
_CARRIED = ("serialize", "send", "wait", "receive", "deserialize")
_OTHERS = ("server", "queue", "between", "other")
_WAITED = ("wait", "queue", "server")
_WITH_SERVER = "a session whose client gets the server's times in its replies (RpcRecorder)"
_A_FACTOR = "=FACTOR, such as 0.5"
CHECKS: Mapping[str, Check] = {
    CALLS: ("A", factor_of, f"{_A_FACTOR}: the same bytes in half as many calls"),
    BYTES: ("A", factor_of, f"{_A_FACTOR}: of all arrays"),
    TRANSPORT: ("A", lambda value: value if value == SHARED else None, f"={SHARED}: shared memory"),
}


class ChangeableCalls(ChangeableFlow):
    """One session of calls, which predicts itself."""

    checks: Mapping[str, Check] | None = CHECKS
    of, perfect = "session of the same work", "calls were carried in no time"

    def __init__(self, session: Session) -> None:
        """Reads it once."""
        self._session, report = session, read_calls(session)
        self._costs, self._is_shared = Costs(report), report.is_shared
        calls, source = list[CallRecord](), open_source(session)
        for columns in source.read(calls.clear):
            calls += calls_in(columns, 0, MOST_CALLS - len(calls))
        count, starts = report.overall.calls, source.starts_known
        whole = (
            f"{len(calls):,} calls" if len(calls) == count else f"the first {len(calls):,} of {count:,} calls"
        )
        self._known = flow_of(calls, starts, whole)
        self._untold = [
            name for name in _WAITED if all(getattr(call, f"{name}_ns") is None for call in calls)
        ]

    @property
    def phases(self) -> Mapping[str, tuple[int, ...]]:
        """Stages of a call, and what is between calls."""
        return PHASES

    @property
    def flow(self) -> Flow:
        """The session."""
        return self._known.flow

    def made(self, found: Engine, changes: Sequence[Change]) -> Outcomes:
        """As of any flow. Raises MissingRecordError for a stage that these calls do not tell apart."""
        for change in changes:
            if fnmatch.filter(self._untold, change.name):
                raise MissingRecordError(
                    change.text,
                    "the server's times: here they are part of what the caller waits and receives",
                    _WITH_SERVER,
                )
        return super().made(found, changes)

    def outcomes(self, found: Engine, base: Made, told: Sequence[Change]) -> Outcomes:
        """Most likely, and by each cost that explains the calls. Raises MissingRecordError."""
        ways = self._ways({change.name: change for change in told}) if told else []
        likely, *others = [self._known.shorter(base, way.saved_ns) for way in ways] or [base]
        return Outcomes(likely, others, None if "server" in self._untold else self._perfect(found, base))

    def _ways(self, told: Mapping[str, Change]) -> list[Way]:
        """The changes of a call: most likely, and by each cost that explains the calls."""
        costs = self._costs.costs
        if not costs:
            why = "; ".join(self._costs.unknown) or "these calls' times do not follow from their bytes"
            raise MissingRecordError(
                " ".join(change.text for change in told.values()),
                f"calls that tell what they and their bytes cost: {why}",
                _WITH_SERVER,
            )
        calls, size = (float(told[name].value) if name in told else 1.0 for name in (CALLS, BYTES))
        if TRANSPORT not in told:
            return [Way(cost, calls, size) for cost in (costs[-1], *costs)]
        copies_ns = self._copies_ns(told[TRANSPORT])
        others = [Way(cost, calls, size, copy_ns) for cost in costs for copy_ns in copies_ns]
        return [Way(costs[-1], calls, size, mean(copies_ns)), *others]

    def _copies_ns(self, change: Change) -> list[float]:
        if self._is_shared:
            raise PerfError(f"{change.text!r}: these calls' arrays are in shared memory already")
        if not self._costs.copies_ns:
            raise MissingRecordError(
                change.text,
                "how fast this machine copies",
                "a session of this version's RpcRecorder or Probe",
            )
        return self._costs.copies_ns

    def _perfect(self, found: Engine, base: Made) -> Made:
        for name in _CARRIED:
            base = found.resized(self.flow, base, Change(name, "=", "0", "", "A"), self.phases)
        return base

    def usual_ns(self, text: str) -> float:
        """From the first call's start to the last one's end."""
        del text
        flow = self.flow
        return float(max(flow.lanes[lane][at].end_ns for lane, at in flow.units) - min(flow.begins_ns))

    def flag_of(self, change: Change) -> str:
        """None: calls are the application's own."""
        del change
        return ""

    def rates(self, prediction: Prediction) -> Mapping[str, float]:
        """Calls, as they were recorded, a second of the predicted session."""
        return {"calls/s": prediction.steps * NS_PER_S / max(1.0, prediction.predicted_ns)}

    def tried(self) -> Iterator[Change]:
        """Half as many calls and bytes, shared memory, and each stage in half the time."""
        yield from (Change(name, "=", "0.5", "", "A") for name in (CALLS, BYTES))
        yield Change(TRANSPORT, "=", SHARED, "", "A")
        yield from (Change(name, "*=", "0.5", "", "A") for name in (*_CARRIED, *_OTHERS))
