"""Attention's two products among the calls of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from functools import lru_cache
from operator import add
from typing import Any, cast

from flagscale_perf.rpc.analysis.columns import Columns
from flagscale_perf.rpc.analysis.source import Source, open_source

_SLACK_BYTES = 32  # a log rounds each size to 10 bytes


class Attention:
    """Pairs of calls as attention's two products are: QK^T sends q and k and returns the scores, PV sends as
    many scores and v, which is as large as k, and returns what is as large as q.

    Attributes:
        pairs: how many.
        scores_bytes: of all their scores, one way.
        keys_bytes: of all their keys, as they were sent.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forgets an earlier session of the same log."""
        self.pairs = 0
        self.scores_bytes = self.keys_bytes = 0.0
        self._repeats: Counter[int] = Counter()
        self._last: tuple[list[Any], ...] = ([], [], [])

    @property
    def repeats(self) -> int:
        """How often each head of k and v was usually sent, by the projection that made q, k and v before; 1
        where that is not known.
        """
        return self._repeats.most_common(1)[0][0] if self._repeats else 1

    def add(self, columns: Columns) -> None:
        """Adds the next calls."""
        fields = (columns[name] for name in ("method", "sent_bytes", "received_bytes"))
        methods, sent, received = ([*held, *more] for held, more in zip(self._last, fields, strict=True))
        moved = [*map(add, sent, received)]  # by both products alike: q, k and the scores
        for place, both in enumerate(zip(moved[1:], moved[2:], strict=False), 1):
            if -_SLACK_BYTES <= both[0] - both[1] <= _SLACK_BYTES and sent[place] > received[place + 1]:
                self._look(*((methods[n], sent[n], received[n]) for n in (place - 1, place, place + 1)))
        self._last = methods[-2:], sent[-2:], received[-2:]

    def _look(self, before: Sequence[Any], first: Sequence[Any], second: Sequence[Any]) -> None:
        if first[0] != second[0] or not first[2] or not second[2]:
            return
        keys = first[1] - second[2]
        self.pairs += 1
        self.scores_bytes += first[2]
        self.keys_bytes += keys
        own = (before[2] - second[2]) / 2  # of k, as the projection before it made it
        if before[0] != first[0] and own > 0 and abs(keys / own - round(keys / own)) < 0.01:
            self._repeats[round(keys / own)] += 1


def attention_in(source: Source) -> Attention:
    """Of all calls, which are read anew: a report keeps only some of them."""
    return _read(cast(Hashable, source))  # sources are hashed by identity, which a protocol does not say


@lru_cache(maxsize=1)
def _read(source: Any) -> Attention:
    found = Attention()
    for columns in open_source(source.session).read(found.begin):
        found.add(columns)
    return found
