"""What rank 0's writer asks the processes of all ranks: as steps stay away, or as somebody has asked it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flagscale_perf.spine.records import Record
from flagscale_perf.training.rank_records import DoingRecord
from flagscale_perf.training.ranks.hang import HangWatch
from flagscale_perf.training.ranks.inquiry import Inquiry
from flagscale_perf.training.records import StepRecord
from flagscale_perf.training.requests import PROFILE, STACKS, RequestFile
from flagscale_perf.writer.instrument import Entry, Remark

NOT_PROFILED = "not profiled"


class Questions:
    """Of one writer; without a process between it and rank 0 it asks nothing."""

    def __init__(
        self, requests: RequestFile, own: Inquiry | None, size: int, send: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """`own`: asks rank 0; `size`: ranks of the job; `send`: to all others."""
        self._requests, self._own, self._send = requests, own, send
        self._hang = HangWatch(size, self._ask)
        self._profiled = ""  # what to say once rank 0 has agreed

    def step(self, step: StepRecord) -> None:
        """One more step of rank 0."""
        self._hang.step(step)

    def replay(self, record: Record) -> None:
        """A record that a writer before this one has written."""
        self._hang.replay(record)

    def heard(self, records: Sequence[Record]) -> list[Record]:
        """Keeps the answers among what came from other ranks; returns the rest."""
        for record in records:
            if isinstance(record, DoingRecord):
                self._hang.heard(record)
        return [record for record in records if not isinstance(record, DoingRecord)]

    def look(self, first_ahead: int | None) -> list[Entry]:
        """Asks what is to be asked, and returns what there is to write. `first_ahead`: the first iteration of
        which all ranks still hear in time; None where that is not known yet.
        """
        if self._own is None:
            return []
        if self._requests.take(STACKS):
            self._hang.stacks()
        for answer in self._own.take():
            self._hang.heard(answer)
        entries: list[Entry] = [*self._hang.look()]
        if (refusal := self._own.refusal()) is not None:
            entries.append(Remark(PROFILE, f"{NOT_PROFILED}: {refusal}" if refusal else self._profiled))
        return entries + self._profile(self._requests.take(PROFILE), first_ahead)

    def _profile(self, steps: Any, first: int | None) -> list[Entry]:
        if type(steps) is not int or steps < 1:
            return []
        if first is None:
            return [Remark(PROFILE, f"{NOT_PROFILED}: too few steps have come to tell how long one takes")]
        self._profiled = (
            f"{steps} iterations from {first} on are profiled, beside clean ones; they take longer"
        )
        self._ask({PROFILE: [first, first + steps - 1]})
        return []

    def _ask(self, request: Mapping[str, Any]) -> None:
        if self._own is not None:
            self._own.request(request)
        self._send(request)
