"""A number for each sample of each partition, by its index: the lineage's state of that sample."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from flagscale_perf.trace.analysis.moves import Clear, Move

PAGE = 4096


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

    def pieces(self, move: Move | Clear) -> Iterator[Piece]:
        """The samples of a move or clear, page by page."""
        if isinstance(move, Clear) and move.ranges is None:
            yield from self._partition(move.partition)
        single: dict[int, list[int]] = {}
        for first, count in move.ranges or ():
            at, end = first, first + count
            while at < end:
                number, begin = divmod(at, PAGE)
                if count == 1:
                    single.setdefault(number, []).append(begin)
                    break
                stop = min(PAGE, begin + end - at)
                yield Piece(self._page(move.partition, number), number * PAGE, range(begin, stop))
                at += stop - begin
        for number, places in single.items():
            yield Piece(self._page(move.partition, number), number * PAGE, places)

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
