"""Each sample's state as puts, gets and clears come in: the puts of its life, and where it is kept."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from flagscale_perf.trace.analysis.transfers import Clear, Transfer, Transfers

PAGE = 4096


def in_turn(transfers: Transfers) -> Iterator[int | Clear]:
    """Puts and gets by their index, and clears, in time order."""
    found = transfers.transfers
    clears = deque(sorted(transfers.clears, key=lambda clear: clear.at_ns))
    for place in sorted(range(len(found)), key=lambda at: (found[at].ready_ns, found[at].kind)):
        while clears and clears[0].at_ns <= found[place].ready_ns:
            yield clears.popleft()
        yield place
    yield from clears


def cleared_exactly(transfers: Transfers) -> set[str]:
    """Partitions of which everything that was cleared is known, so that nothing else ends a life there."""
    return {clear.partition for clear in transfers.clears} - {
        clear.partition for clear in transfers.clears if not clear.is_known
    }


class Nodes:
    """The history of samples within their current life; numbered from 1. Samples with the same history share
    their nodes.

    Attributes:
        put: the last put, a place in the transfers.
        before: the node before it; 0 for none.
        first: the first put of the life.
        is_over: the last consumer has had it.
    """

    def __init__(self, transfers: Sequence[Transfer], functions: Sequence[str]) -> None:
        """`functions`: in which each transfer was made."""
        self._transfers, self._functions = transfers, functions
        self.put, self.before, self.first, self.is_over = [-1], [0], [-1], [True]
        self._over: dict[int, int] = {}

    def begins(self, node: int, put: int) -> bool:
        """Whether a put of samples with this node begins a new life, as far as puts and gets tell: it writes
        what the life began with, and is made in the same function or comes after the last consumer.
        """
        first = self.first[node]
        began, writes = self._transfers[first].fields, self._transfers[put].fields
        if began is not None and writes is not None and began.isdisjoint(writes):
            return False
        return self.is_over[node] or self._functions[first] == self._functions[put]

    def after_put(self, node: int, put: int) -> int:
        """The node after a put of samples with this node; 0 where a life begins."""
        return self._add(put, node, self.first[node] if node else put, node > 0 and self.is_over[node])

    def after_last_get(self, node: int) -> int:
        """The node after the last consumer got samples with this node."""
        if self.is_over[node]:
            return node
        over = self._over.get(node)
        if over is None:
            over = self._over[node] = self._add(self.put[node], self.before[node], self.first[node], True)
        return over

    def _add(self, put: int, before: int, first: int, is_over: bool) -> int:
        self.put.append(put)
        self.before.append(before)
        self.first.append(first)
        self.is_over.append(is_over)
        return len(self.put) - 1

    def writers(self, node: int, fields: frozenset[str] | None) -> list[int]:
        """The puts of this life that wrote what a get of these fields has, the last one first: for each field
        the last that wrote it. Where the fields of either are not known, any put may be one.
        """
        found, left = [], fields
        while node and (left is None or left):
            put = self.put[node]
            written = self._transfers[put].fields
            if left is None or written is None:
                found.append(put)
            elif not left.isdisjoint(written):
                found.append(put)
                left -= written
            node = self.before[node]
        return found


class Piece:
    """Samples within one page.

    Attributes:
        base: index of the page's first one.
        places: of these samples in it.
    """

    __slots__ = ("_page", "base", "places")

    def __init__(self, page: list[int], base: int, places: range | list[int]) -> None:
        self._page, self.base, self.places = page, base, places

    def read(self) -> list[int]:
        """The numbers of these samples."""
        page, places = self._page, self.places
        if isinstance(places, range):
            return page[places.start : places.stop]
        return [page[place] for place in places]

    def write(self, numbers: list[int]) -> None:
        """Sets the numbers of these samples."""
        page, places = self._page, self.places
        if isinstance(places, range):
            page[places.start : places.stop] = numbers
            return
        for place, number in zip(places, numbers, strict=True):
            page[place] = number


class Indexes:
    """A number for each index of each partition, initially 0, in pages allocated as needed."""

    def __init__(self) -> None:
        self._pages: dict[tuple[str, int], list[int]] = {}

    def pieces(self, transfer: Transfer | Clear) -> Iterator[Piece]:
        """The samples of a transfer or clear, page by page."""
        if isinstance(transfer, Clear) and transfer.ranges is None:
            yield from self._partition(transfer.partition)
        single: dict[int, list[int]] = {}
        for first, count in transfer.ranges or ():
            at, end = first, first + count
            while at < end:
                number, begin = divmod(at, PAGE)
                if count == 1:
                    single.setdefault(number, []).append(begin)
                    break
                stop = min(PAGE, begin + end - at)
                yield Piece(self._page(transfer.partition, number), number * PAGE, range(begin, stop))
                at += stop - begin
        for number, places in single.items():
            yield Piece(self._page(transfer.partition, number), number * PAGE, places)

    def _partition(self, name: str) -> Iterator[Piece]:
        for (partition, number), page in self._pages.items():
            if partition == name:
                yield Piece(page, number * PAGE, range(PAGE))

    def _page(self, partition: str, number: int) -> list[int]:
        page = self._pages.get((partition, number))
        if page is None:
            page = self._pages[partition, number] = [0] * PAGE
        return page

    def counted(self) -> Counter[int]:
        """How many indexes have each number."""
        counts: Counter[int] = Counter()
        for page in self._pages.values():
            counts.update(page)
        del counts[0]
        return counts
