"""How far the files of a session have been read; a long reading goes on where an earlier one stood."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.spine.jsonl import BadLine
from flagscale_perf.spine.records import RunEnd
from flagscale_perf.store.decoder import Chunk
from flagscale_perf.store.kept import Kept
from flagscale_perf.store.run_file import Position, RunFile


@dataclass
class Progress:
    """What is known of the files besides what is folded from their records.

    Attributes:
        moved_ns: where a mark of each further file lies on the first one's clock: what was kept when less was
            known of the clocks is of no use.
        begun: of each file that was begun, the highest number of a process in those before.
        taken: the highest number of a process so far.
        ends: of each file that was read through, the record of its end if it has one.
        bad: what each file has noted of lines that are no records.
        line_begin, lines: how far the last file was read, see `Position`.
    """

    moved_ns: list[int] = field(default_factory=list)
    begun: list[int] = field(default_factory=list)
    taken: int = 0
    ends: list[RunEnd | None] = field(default_factory=list)
    bad: list[tuple[list[BadLine], int, str]] = field(default_factory=list)
    line_begin: int = 0
    lines: int = 0

    def read(
        self, files: Sequence[RunFile], into: Sequence[Any], end: Callable[[], RunEnd | None]
    ) -> Iterator[tuple[RunFile, Iterator[Chunk]]]:
        """Each file that is still to be read, with its records. `into`: the objects they are folded into, the
        instrument's own first; none where nothing is to be kept. `end`: that of the file just read. Raises
        PerfError.
        """
        kept = Kept.of([file.path for file in files], [*into, self], may_grow=True) if into else None
        parts = kept.restore() if kept else None
        begin = Position(parts[-1], self.line_begin, self.lines) if parts else None
        for file, bad in zip(files, self.bad, strict=False):
            file.bad_lines, file.skipped, file.joined = bad

        def at_end(position: Position) -> None:
            """Before the last few lines, so that a later reading cuts the file as one from its beginning."""
            if kept:
                part, self.line_begin, self.lines = position
                self.bad = [(file.bad_lines, file.skipped, file.joined) for file in files]
                kept.keep(part)

        for number, file in enumerate(files):
            if number < len(self.ends):
                continue
            if number == len(self.begun):
                self.begun.append(self.taken)
            is_last = file is files[-1]
            yield file, file.chunks(begin if is_last else None, at_end if kept and is_last else None)
            self.ends.append(end())
