"""How long consumers wait for samples that are not there yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.trace.records import WaitRecord

LONG_NS = 100 * NS_PER_MS  # ours: an answer takes some milliseconds; one that takes longer was waited for


@dataclass
class Waits:
    """One consumer's requests for samples in one process. It has waited from the first request that found too
    few samples until the answer that had them, or through one request that took long. Its first samples are
    left out, which must be made first, and so is what nothing has come of.

    Attributes:
        requests: for samples.
        unanswered: those that found too few, or failed.
        answered: those that got samples.
        waited: of these, how many were waited for.
        waited_ns: for all of them.
        first_ns: waited for the first samples.
    """

    requests: int = 0
    unanswered: int = 0
    answered: int = 0
    waited: int = 0
    waited_ns: int = 0
    first_ns: int = 0
    _since: dict[str, int] = field(default_factory=dict)  # by partition: the first request that found too few

    def add(self, wait: WaitRecord, partition: str) -> None:
        """Adds the next request."""
        self.requests += 1
        if wait.error or not wait.rows:
            self.unanswered += 1
            self._since.setdefault(partition, wait.start_ns)
            return
        since_ns = self._since.pop(partition, None)
        took_ns = wait.start_ns + wait.total_ns - (wait.start_ns if since_ns is None else since_ns)
        has_waited = since_ns is not None or took_ns >= LONG_NS
        self.answered += 1
        if has_waited and self.answered == 1:
            self.first_ns = took_ns
        elif has_waited:
            self.waited += 1
            self.waited_ns += took_ns

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: value for name, value in vars(self).items() if name != "_since"}
