"""All ranks of a job as the process that gathers them sees them: those of its node through their rings, those
of other nodes through their files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, monotonic_ns
from flagscale_perf.spine.peers.node import Gone, News, Node
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.exchange import Inbox, Received, directory_of
from flagscale_perf.training.ranks.kept import KeptBlocks
from flagscale_perf.training.ranks.kind import RankItem, name_of
from flagscale_perf.training.ranks.place import Place

LOOK_NS = 15 * NS_PER_MS  # of every half second; with what is then made of it, about one twentieth of a core
LAST_LOOK_NS = 500 * NS_PER_MS
SILENCE_NS = 60 * NS_PER_S  # from then on it is reported that nothing has come from other nodes
MAX_NOTES = 64


@dataclass
class Gathered:
    """News of all processes of the job; each process is found and dies once.

    Attributes:
        owners: of the processes found for the first time.
        items: what their folds have made.
        gone: those that have died.
        notes: reports, each text once whichever process it is about, as what troubles one process mostly
            troubles all.
    """

    owners: list[RankIdentity]
    items: list[RankItem]
    gone: list[Gone]
    notes: list[str]


class Gatherer:
    """Brings the job's other processes together; reads files in `take`, so not for a thread of the host."""

    def __init__(
        self, place: Place, directory: Path, kept: KeptBlocks, node: Node[RankIdentity, RankItem]
    ) -> None:
        """`place` of the process whose companion this is, and `node` of those beside it; `directory` of the
        run's files; `kept`: where blocks stay as they were sent.
        """
        self._place, self._directory, self._kept = place, directory, kept
        self._node = node
        self._inbox: Inbox | None = None
        self._met = {str(place.rank)}
        self._gone: set[str] = set()
        self._noted: set[str] = set()
        self._request: Any = None
        self._start_ns: int | None = None
        self._has_reported_silence = self._has_reported_missing = self._is_cut_off = False
        self._new = Gathered([], [], [], [])

    def request(self, content: Any) -> None:
        """Asks every process's fold for something, on all nodes; see `Fold.request`."""
        self._request = content
        self._node.request(content)
        if self._inbox is not None:
            with contextlib.suppress(OSError):  # the beacon is made again, with the request, in `take`
                self._inbox.request(content)

    def take(self) -> Gathered:
        """The news since the last call; files are read for `LOOK_NS` at most."""
        if self._start_ns is None:
            self._start_ns = monotonic_ns()
        self._add(self._node.cycle())
        if self._place.has_other_nodes:
            self._read_files(lambda inbox: inbox.look(LOOK_NS))
        self._notice_silence(self._start_ns)
        return self._taken()

    def close(self) -> Gathered:
        """The last news, at the end of the job; removes the exchange's directory."""
        self._add(self._node.close())
        if self._inbox is not None:
            self._read_files(lambda inbox: inbox.close(LAST_LOOK_NS))
        return self._taken()

    def _taken(self) -> Gathered:
        new, self._new = self._new, Gathered([], [], [], [])
        return new

    def _read_files(self, look: Callable[[Inbox], Received]) -> None:
        """The files of other nodes; what fails is tried again in the next cycle."""
        try:
            received = look(self._opened_inbox())
        except OSError as error:
            self._is_cut_off = True
            reason = f"{type(error).__name__}: {error}"
            self._report(f"cannot read other nodes' ranks: {reason}; retrying")
            return
        if self._is_cut_off:
            self._is_cut_off = False
            self._report("other nodes' ranks are read again")
        for report in received.reports:
            self._meet(report.owners)
        self._new.items += received.items
        for hostname, lines in received.blocks:
            self._kept.add(hostname, lines)
        for report in received.reports:
            self._lose(report.gone)
            self._note(report.notes)
        for complaint in received.complaints:
            self._report(f"incomplete data from another node's ranks: {complaint}")

    def _opened_inbox(self) -> Inbox:
        if self._inbox is None:
            directory = directory_of(self._directory, self._place.key)
            self._inbox = Inbox(directory, self._place.world_size)
            if self._request is not None:
                self._inbox.request(self._request)
        return self._inbox

    def _add(self, news: News[RankIdentity, RankItem]) -> None:
        self._meet(news.owners)
        self._new.items += news.items
        self._kept.add_items(news.items)
        self._lose(news.gone)
        self._note(news.notes)

    def _meet(self, owners: Iterable[RankIdentity]) -> None:
        for owner in owners:
            if (name := name_of(owner)) not in self._met:
                self._met.add(name)
                self._new.owners.append(owner)

    def _lose(self, gone: Iterable[Gone]) -> None:
        for each in gone:
            if each.name not in self._gone and each.name in self._met:
                self._gone.add(each.name)
                self._new.gone.append(each)

    def _note(self, notes: Iterable[tuple[str, str]]) -> None:
        for name, text in notes:
            self._report(text, f"rank {name}: ")

    def _report(self, text: str, about: str = "") -> None:
        if text not in self._noted and len(self._noted) < MAX_NOTES:
            self._noted.add(text)
            self._new.notes.append(f"{about}{text}")

    def _notice_silence(self, start_ns: int) -> None:
        if self._node.missing and not self._has_reported_missing:
            self._has_reported_missing = True
            self._report(
                f"{_are(self._node.missing, 'this node')} silent: "
                "no process of this user has handed their records over"
            )
        is_known = self._has_reported_silence or self._is_cut_off
        if is_known or not self._place.has_other_nodes or monotonic_ns() - start_ns < SILENCE_NS:
            return
        self._has_reported_silence = True
        silent = self._place.world_size - len(self._met) - self._node.missing
        if silent > 0:
            self._report(
                f"{_are(silent, 'other nodes')} silent: "
                f"{self._directory} is perhaps not the same directory on every node"
            )


def _are(count: int, where: str) -> str:
    return f"1 rank of {where} is" if count == 1 else f"{count} ranks of {where} are"
