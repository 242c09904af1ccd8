"""The samples that took longest from their first put until the last consumer had them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MOST = 10


@dataclass(frozen=True)
class Late:
    """Samples with the same history that the last consumer got together. Times are on the common clock.

    Attributes:
        partition, index, last, count: where they are: the first, the last, and how many.
        first_ns: when their first put was there.
        ready_ns: when the last of what was got was.
        used_ns: when they were got.
        step: of the training; as counted where it is not recorded.
        written: who put the last of what was got.
    """

    partition: str
    index: int
    last: int
    count: int
    first_ns: int
    ready_ns: int
    used_ns: int
    step: int | None
    written: str

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data, with durations for times."""
        times = {"took_ns": self.used_ns - self.first_ns, "until_put_ns": self.ready_ns - self.first_ns}
        content = {key: value for key, value in asdict(self).items() if not key.endswith("_ns")}
        return content | times | {"waited_ns": self.used_ns - self.ready_ns}

    @property
    def name(self) -> str:
        """As `--sample` takes it, where it is one."""
        if self.count == 1:
            return f"{self.partition}:{self.index}"
        return f"{self.partition}:{self.index} to {self.last} ({self.count})"


class Latest:
    """The `MOST` of them, the latest first. Those that a job began with, while its processes were starting,
    come behind all others.

    Attributes:
        found: those so far.
    """

    def __init__(self, began_ns: int) -> None:
        self._began_ns = began_ns
        self.found: list[Late] = []

    def add(self, one: Late) -> None:
        """Keeps these samples if they are among the latest."""
        if len(self.found) < MOST or self._order(one) < self._order(self.found[-1]):
            self.found = sorted((*self.found, one), key=self._order)[:MOST]

    def _order(self, one: Late) -> tuple[bool, int]:
        return one.first_ns < self._began_ns, one.first_ns - one.used_ns
