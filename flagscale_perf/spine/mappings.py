"""Mappings that all have the same keys, in columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload


class Mappings(Sequence[Any]):
    """A column of mappings that all have the same keys, as a column for each of them."""

    def __init__(self, columns: Mapping[str, Sequence[Any]]) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    @overload
    def __getitem__(self, at: int) -> dict[str, Any]: ...

    @overload
    def __getitem__(self, at: slice) -> Mappings: ...

    def __getitem__(self, at: int | slice) -> Any:
        made = {name: column[at] for name, column in self.columns.items()}
        return Mappings(made) if isinstance(at, slice) else made

    def __iter__(self) -> Iterator[dict[str, Any]]:
        rows = zip(*self.columns.values(), strict=True)
        return (dict(zip(self.columns, row, strict=True)) for row in rows)

    def __contains__(self, value: object) -> bool:
        return isinstance(value, dict) and any(
            value == one for one in self
        )  # none is None: that is seen at once
