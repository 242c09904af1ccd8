"""A finding while a run lasts: what run file, log, `findings.jsonl` and `--perf-on-finding` have of it.

Whoever finds something hands a `FindingRecord` to the writer, where it returns remarks and records. The
writer's journal does the rest: the record and an event of its sentence go into the run file, and somebody is
told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.records import record

BEGINS, WORSENS, ENDS = STATES = ("begins", "worsens", "ends")


class Said(NamedTuple):
    """How the log says a finding.

    Attributes:
        event: the name of its `EventRecord`.
        is_urgent: it goes to stderr, too.
    """

    event: str
    is_urgent: bool = False


FINDINGS = {
    "straggler": Said("slow"),
    "slowdown": Said("slow"),
    "slow": Said("slow"),
    "host_short_of_cpu": Said("slow"),
    "hang": Said("hang", is_urgent=True),
    "lost_rank": Said("rank"),
    "disk": Said("failure", is_urgent=True),
    "memory": Said("memory"),
    "hardware": Said("hardware"),
    "standstill": Said("standstill", is_urgent=True),
    "suspect": Said("suspect", is_urgent=True),
}


@record("finding", start="at_ns")
@dataclass(frozen=True)
class FindingRecord:
    """A finding that begins, worsens or ends.

    Attributes:
        finding: a key of `FINDINGS`.
        state: one of `STATES`. What is over at once (an error of a device) begins and never ends.
        text: one sentence, as the log has it.
        severity: the figure it is judged by, which is greater where it is worse; None where there is none.
        unit: of the severity, such as "ms" or "share".
        subject: which of several of the same name that may last at the same time, such as "rank 3, forward".
        evidence: figures and names behind it, JSON-ready, units in the keys.
        is_logged: an event of its sentence follows in the run file.
        at_ns: monotonic mark; the journal's moment where it is 0.
        iteration: the last finished one; the journal's where it is 0.
    """

    finding: str
    state: str
    text: str
    severity: float | None = None
    unit: str = ""
    subject: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)
    is_logged: bool = True
    at_ns: int = 0
    iteration: int = 0

    @property
    def identity(self) -> tuple[str, str]:
        """The same while it lasts."""
        return self.finding, self.subject

    def told(self, session_id: str | None, anchor: Anchor) -> dict[str, Any]:
        """JSON-ready, for scripts: one flat object, the sentence last. `anchor`: of the session's clocks."""
        return {
            "session_id": session_id,
            "unix_s": anchor.wall_of(self.at_ns) / NS_PER_S,
            "finding": self.finding,
            "state": self.state,
            "iteration": self.iteration,
            "severity": self.severity,
            "unit": self.unit,
            **self.evidence,
            "text": self.text,
        }
