"""Figures as text: numbers, shares, durations, lists of ranks, aligned tables; text made safe to print."""

from __future__ import annotations

import codecs
import re
import sys
import textwrap
import unicodedata
from collections.abc import Collection, Iterable, Sequence
from typing import TextIO

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

UNKNOWN = "-"
PLAINLY = "flagscale_perf"  # errors= of a stream: without escapes where a plain character will do
_SIGNS = str.maketrans("▁▂▃▄▅▆▇█▓▒░·×µ–°\xa0", "_.:-=+*#=-..xu-o ")

# C0, DEL, C1; line and paragraph separator; the marks and overrides of bidirectional text; lone surrogates
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400


def printable(text: str) -> str:
    """The text on one line; what could move a cursor or reorder a line becomes `\\x1b`, `\\u202e` ..."""
    return _UNSAFE.sub(_escaped, text)


def _plainly(error: UnicodeError) -> tuple[str, int]:
    """An error handler of `str.encode`: bars and signs as letters of ASCII, anything else as `\\u65e5`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end].translate(_SIGNS)
    return text.encode("ascii", "backslashreplace").decode("ascii"), error.end


codecs.register_error(PLAINLY, _plainly)


def for_stdout(text: str) -> str:
    """The text as this process's stdout can encode it, plainly: `print` would raise."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a host may have put any object there
    try:
        text.encode(encoding, getattr(sys.stdout, "errors", None) or "strict")
    except UnicodeEncodeError:
        return text.encode(encoding, PLAINLY).decode(encoding)
    return text


def put_lines(stream: TextIO | None, *lines: str) -> None:
    """Writes lines in one piece: where the stream is unbuffered `print` writes the end of a line by itself,
    and another rank's line may come between. Nothing where there is no stream. Raises what the stream raises.
    """
    if stream is not None:
        stream.write("".join(f"{line}\n" for line in lines))
        stream.flush()


def print_line(text: str) -> None:
    """Puts a line on stdout, as far as that can encode it. Raises what stdout raises."""
    put_lines(sys.stdout, for_stdout(text))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def as_ms(dur_ns: float | None) -> float | None:
    """Milliseconds; None for None."""
    return None if dur_ns is None else dur_ns / NS_PER_MS


def as_s(dur_ns: float | None) -> float | None:
    """Seconds; None for None."""
    return None if dur_ns is None else dur_ns / NS_PER_S


def number(value: float | None, decimals: int) -> str:
    """Rounds to so many decimals, or to 3 significant digits below 1; "-" for None."""
    if value is None:
        return UNKNOWN
    return f"{value:#.3g}" if 0 < abs(value) < 1 else f"{value:.{decimals}f}"


def percent(share: float | None) -> str:
    """A part of 1 as `12.3 %`; "-" for None."""
    return UNKNOWN if share is None else f"{number(share * 100, 1)} %"


def duration(seconds: float | None) -> str:
    """`12.5 s`, `3 min 20 s`, `7 h 05 min`, `3 d 04 h`; "-" for None."""
    if seconds is None:
        return UNKNOWN
    if seconds < 2 * _MINUTE_S:
        return f"{number(seconds, 1)} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02d} h"


def ranges(numbers: Iterable[int], total: int | None = None, most: int = 8) -> str:
    """`0 to 7, 12`; of many runs of neighbours the first ones and how many numbers are left out, of `total`
    where only some of them are at hand: `0, 2, 4 and 12 more`.
    """
    runs: list[list[int]] = []
    count = 0
    for value in sorted(numbers):
        count += 1
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    shown = ", ".join(_run(run) for run in runs[:most])
    left_out = max(total or 0, count) - sum(map(len, runs[:most]))
    return f"{shown} and {left_out} more" if left_out else shown


def _run(run: list[int]) -> str:
    return f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run))


def numbered(noun: str, numbers: Collection[int]) -> str:
    """`rank 3`, `ranks 0 to 7, 12`."""
    return f"{noun}{'' if len(numbers) == 1 else 's'} {ranges(numbers)}"


def stretch(noun: str, first: int, last: int) -> str:
    """`step 7`, `steps 41 to 55`."""
    return f"{noun} {last}" if first == last else f"{noun}s {first} to {last}"


def columns(text: str) -> int:
    """Columns of a terminal that the text takes: two for a wide character, none for one that combines."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(each) else 2 if unicodedata.east_asian_width(each) in "WF" else 1
        for each in text
    )


def filled(text: str, width: int) -> str:
    """The text with spaces behind it, up to this many columns."""
    return text + " " * (width - columns(text))


_WIDE = "\u2e80-\u9fff\uff00-\uffef"
_OPEN, _CLOSE = "（《", "，。；：、）》"  # marks that end no line, and those that begin none
_PIECE = re.compile(f"[{_OPEN}]*(?:[{_WIDE}]|[^ {_WIDE}]+)[{_CLOSE}]*| +")  # a line may end behind one


def wrapped(text: str, width: int, first: str) -> list[str]:
    """Lines of so many columns at most, the first behind `first`, the others as far to the right. Words stay
    whole where they can; a line also ends between two wide characters, never before their closing marks.
    """
    rest = " " * columns(first)
    if columns(first + text) == len(first + text):
        return textwrap.wrap(
            text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False
        )
    lines, line = [], ""
    for piece in _PIECE.findall(text):
        if line and columns(rest + line + piece.rstrip(" ")) > width:
            lines.append(line.rstrip(" "))
            line = ""
        line += piece if line else piece.lstrip(" ")
    lines += [line.rstrip(" ")] if line else []
    return [(rest if place else first) + each for place, each in enumerate(lines)]


def aligned(rows: Sequence[Sequence[str]], numbers_from: int | None = None) -> list[str]:
    """A line for each row, columns two spaces apart; columns from `numbers_from` on are flush right."""
    cells = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(columns, column)) for column in zip(*cells, strict=True)]
    left = len(widths) if numbers_from is None else numbers_from
    return [
        "  ".join(
            filled(cell, width) if column < left else " " * (width - columns(cell)) + cell
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in cells
    ]
