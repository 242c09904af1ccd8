"""Text from anywhere made harmless for a terminal and for a file of lines, and numbers as text."""

from __future__ import annotations

import re
import sys

# C0, DEL, C1; line and paragraph separator; the marks and overrides of bidirectional text; lone surrogates
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

UNKNOWN = "-"


def printable(text: str) -> str:
    """The text on one line: characters that could move a cursor or reorder a line become `\\x1b`, `\\u202e`
    ...
    """
    return _UNSAFE.sub(_escaped, text)


def for_stdout(text: str) -> str:
    """The text with escapes (`\\u65e5`) for what this process's stdout cannot encode, where `print` would raise."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # a host may have put any object there
    try:
        text.encode(encoding, getattr(sys.stdout, "errors", None) or "strict")
    except UnicodeEncodeError:
        return text.encode(encoding, "backslashreplace").decode(encoding)
    return text


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def number(value: float | None, decimals: int) -> str:
    """With so many decimals, and 3 significant digits below 1; "-" for None."""
    if value is None:
        return UNKNOWN
    return f"{value:#.3g}" if 0 < abs(value) < 1 else f"{value:.{decimals}f}"
