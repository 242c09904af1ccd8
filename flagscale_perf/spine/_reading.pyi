"""The extension as Python sees it (`_reading.c`)."""

from typing import Any

VERSION: str

def take_columns(
    data: bytes, start: int, keys: tuple[bytes, ...], allowed: bytes, /
) -> tuple[int, tuple[list[Any], ...]]: ...
def take_text_lines(
    data: bytes, mark: bytes, shapes: tuple[tuple[tuple[bytes, ...], bytes], ...], /
) -> tuple[tuple[tuple[list[Any], ...], ...], bytes]: ...
