"""Text from anywhere made harmless for a terminal and for a file of lines, and numbers as text."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

# C0, DEL, C1; line and paragraph separator; the marks and overrides of bidirectional text; lone surrogates
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

UNKNOWN = "-"


def printable(text: str) -> str:
    """The text on one line: characters that could move a cursor or reorder a line become `\\x1b`, `\\u202e`
    ...
    """
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def number(value: float | None, decimals: int) -> str:
    """With so many decimals, and 3 significant digits below 1; "-" for None."""
    if value is None:
        return UNKNOWN
    return f"{value:#.3g}" if 0 < abs(value) < 1 else f"{value:.{decimals}f}"


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
