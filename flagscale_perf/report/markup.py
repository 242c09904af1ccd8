"""HTML in which nothing can get unescaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from flagscale_perf.spine.units import printable

_VOID = {"input"}  # have no content and no end


class Html(str):
    """HTML. Any other text is escaped when it becomes a part of one."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str(self) + str(text(other)))


def text(value: str) -> Html:
    """HTML as it is; other text escaped, on one line, without what reorders a line or is no character."""
    return value if isinstance(value, Html) else Html(escape(printable(value)))


def join(parts: Iterable[str], between: str = "") -> Html:
    """The parts one after the other."""
    return Html(text(between).join(text(part) for part in parts))


def lines(parts: Iterable[str]) -> Html:
    """The parts that are not empty, each on a line of its own."""
    return join(text(part) + Html("\n") for part in parts if part)


def tag(name: str, /, *children: str, **attributes: str) -> Html:
    """An element. `class_` is class, `data_x` is data-x; attributes with empty values are left out."""
    written = "".join(_attribute(key, value) for key, value in attributes.items() if value)
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def _attribute(key: str, value: str) -> str:
    return f' {key.rstrip("_").replace("_", "-")}="{escape(printable(value))}"'
