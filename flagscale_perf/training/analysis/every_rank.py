"""What every rank has sent, as it is kept beside the run file: block by block, and as rows."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from copy import copy
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import MAX_NS, dump
from flagscale_perf.spine.session import ranks_name, ranks_parts
from flagscale_perf.store.checked import CheckedLines
from flagscale_perf.store.sidecars import NoSidecar
from flagscale_perf.store.tables import TIME, Columns
from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.ranks.blocks import Block, decode_block, encode_block

ROWS = 1 << 14
# With their types: when rank 0's machine had it (Unix time), the host that sent it, the fields of the block
# and those of its `host`. Its cuts are of the whole machine and in no row.
COLUMNS: dict[str, Any] = {TIME: int, "node": str}
COLUMNS |= {name: hint for name, hint in get_type_hints(Block).items() if name not in ("host", "cuts")}
COLUMNS |= get_type_hints(HostStretch)

RankRow = tuple[Any, ...]


class Sent(NamedTuple):
    """A block, the host that sent it, and when rank 0's machine had it."""

    kept_wall_ns: int
    node: str
    block: Block


class EveryRank:
    """Reads the files from front to back, in memory that grows with the number of ranks alone.

    Attributes:
        paths: of the files, from old to new.
    """

    def __init__(self, session: Session, ranks: Collection[int] | None = None) -> None:
        """`ranks`: these only, which is faster; None for all. Raises NoSidecar where nothing is kept,
        PerfError where that cannot be told.
        """
        start_ns = session.header.start_wall_ns
        directory = session.path.parent
        self.paths = [directory / ranks_name(start_ns, part) for part in _parts(directory, start_ns)]
        if not self.paths:
            raise NoSidecar(
                f"of {str(session.path)!r} not every rank is kept: it is in jobs of more than 256 ranks, and"
                " with --perf-ranks-gb; ranks() has what is in the run file"
            )
        self._ranks = None if ranks is None else frozenset(ranks)
        self._lines, self._before = CheckedLines(self.paths), ""
        self._refused = 0
        self._last: dict[int, Block] = {}
        self._behind: set[int] = set()  # ranks whose known blocks may come again, read by another writer

    def part(self, path: Path, before: str) -> EveryRank:
        """One of the files alone; `before`: the `state` of the one before it, empty for the first."""
        made = copy(self)
        made.paths, made._lines, made._before = [path], CheckedLines([path]), before
        return made

    @property
    def is_whole(self) -> bool:
        """Whether no file failed to be read, so far."""
        return not self._lines.troubles

    @property
    def state(self) -> str:
        """What the next file's rows depend on: each rank's last block, and which ranks' may come again."""
        last = [encode_block(block) for _, block in sorted(self._last.items())]
        return dump([last, sorted(self._behind)])

    def __iter__(self) -> Iterator[Sent]:
        """Every block as it was sent: what a later writer has read again comes again."""
        return (sent for sent in self._sent() if sent is not None)

    def rows(self) -> Iterator[RankRow]:
        """Each block once, in the order in which they came: a value for each of `COLUMNS`."""
        blocks, numbers = json.loads(self._before or "[[], []]")
        last = self._last = {block.rank: block for block in map(decode_block, blocks)}
        behind = self._behind = set(numbers)
        for sent in self._sent():
            if sent is None:
                behind |= last.keys()
                continue
            # a rank's last block may be sent twice: with the cuts of its machine, then without its error
            block = sent.block._replace(xid=None, cuts=())
            before = last.get(block.rank)
            is_behind = block.rank in behind and before is not None and block.iteration <= before.iteration
            if block == before or is_behind:
                continue
            behind.discard(block.rank)
            last[block.rank] = block
            yield sent.kept_wall_ns, sent.node, *sent.block[:-2], *block.host

    def columns(self) -> Iterator[Columns]:
        """The same, up to `ROWS` rows at a time: a sequence of values for each of `COLUMNS`."""
        rows = self.rows()
        while some := list(islice(rows, ROWS)):
            yield list(zip(*some, strict=True))

    def remarks(self) -> list[str]:
        """What has to be said of what was read so far."""
        found, first = self._lines, self.paths[0].name
        counts = {
            "lines of ranks' blocks are damaged and left out": found.damaged,
            "blocks of ranks are damaged or of another version, and left out": self._refused,
            "bytes behind the last whole line: cut off, or still being written": found.cut_bytes,
        }
        is_cut = not self._before and not first.endswith(".0.jsonl")
        removed = [f"what came before {first} has been removed to make room"] if is_cut else []
        return [*removed, *(f"{count:,} {what}" for what, count in counts.items() if count), *found.troubles]

    def _sent(self) -> Iterator[Sent | None]:
        self._refused = 0
        for content in self._lines:
            if content is None:
                yield None
                continue
            at_ns: Any = content.get("kept_wall_ns")
            node, blocks = content.get("node"), content.get("blocks")
            has_time = type(at_ns) is int and 0 <= at_ns < MAX_NS
            if not has_time or type(node) is not str or type(blocks) is not list:
                self._refused += 1
                continue
            for encoded in filter(self._is_asked_for, blocks):
                try:
                    yield Sent(at_ns, node, decode_block(encoded))
                except ValueError:
                    self._refused += 1

    def _is_asked_for(self, encoded: Any) -> bool:
        """By the rank alone, which comes second: most of the time goes into decoding."""
        if self._ranks is None:
            return True
        return (
            type(encoded) is list
            and len(encoded) > 1
            and type(encoded[1]) is int
            and encoded[1] in self._ranks
        )


def _parts(directory: Path, start_ns: int) -> list[int]:
    try:
        return ranks_parts(directory, start_ns)
    except OSError as error:
        raise PerfError(f"cannot read {str(directory)!r}: {error.strerror}") from None
