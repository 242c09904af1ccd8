"""HTML in which nothing can get unescaped, and figures as text for a page: unit always beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from flagscale_perf.spine.units import number, printable

NOTHING = "–"
_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86400
_LEAST_S, _WHOLE_MS = 1e-3, 1000
_SMALL_SHARE, _LEAST_SHARE = 1e-3, 1e-5
_PREFIXES = (
    (1e24, "Y"),
    (1e21, "Z"),
    (1e18, "E"),
    (1e15, "P"),
    (1e12, "T"),
    (1e9, "G"),
    (1e6, "M"),
    (1e3, "k"),
)

Cell = str | None


class Html(str):
    """HTML. Any other text is escaped when it becomes a part of one."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str(self) + str(text(other)))


def text(value: str) -> Html:
    """Itself if it is HTML already; else escaped, on one line, without what reorders a line or is no
    character.
    """
    return value if isinstance(value, Html) else Html(escape(printable(value)))


def join(parts: Iterable[str], between: str = "") -> Html:
    """The parts one after the other."""
    return Html(text(between).join(text(part) for part in parts))


def tag(name: str, /, *children: str, **attributes: str) -> Html:
    """An element. `class_` is the attribute class, `data_x` is data-x; an attribute whose value is empty
    stands without one.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    start = f"<{name}{written}>"
    return Html(start if name == "meta" else f"{start}{join(children)}</{name}>")


def _attribute(key: str, value: str) -> str:
    key = key.rstrip("_").replace("_", "-")
    return f' {key}="{escape(printable(value))}"' if value else f" {key}"


def table(head: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: int = 0) -> Html:
    """A table that scrolls by itself on a narrow screen; the last so many columns are figures. None becomes a
    dash.
    """
    first_number = len(head) - numbers

    def cells(name: str, row: Sequence[Cell]) -> Html:
        made = (
            tag(name, NOTHING if cell is None else cell, **_number_class(n >= first_number))
            for n, cell in enumerate(row)
        )
        return tag("tr", join(made))

    body = join(cells("td", row) + Html("\n") for row in rows)
    made = tag("table", tag("thead", cells("th", head)), Html("\n"), tag("tbody", Html("\n"), body))
    return tag("div", made, class_="scroll", tabindex="0") + Html("\n")


def _number_class(is_number: bool) -> dict[str, str]:
    return {"class_": "n"} if is_number else {}


def pairs(rows: Iterable[tuple[str, Cell]], class_: str = "facts") -> Html:
    """Labels with their values; a row without a value is left out."""
    kept = [(label, value) for label, value in rows if value is not None]
    return tag(
        "dl",
        *(tag("div", tag("dt", label), tag("dd", value)) + Html("\n") for label, value in kept),
        class_=class_,
    ) + Html("\n")


def note(words: str) -> Html:
    """A line of small print."""
    return tag("p", words, class_="note") + Html("\n")


def unit(value: float | None, decimals: int, name: str) -> str | None:
    """`12.5 ms`; None for None."""
    return None if value is None else f"{number(value, decimals)} {name}"


def milliseconds(value: float | None) -> str | None:
    """`12.5 ms`, `2,131 ms`; None for None."""
    if value is None:
        return None
    return f"{value:,.0f} ms" if value >= _WHOLE_MS else f"{number(value, 1)} ms"


def percent(share: float | None) -> str | None:
    """A part of 1 as `12.3 %`; what would be nothing with 1 decimal has 3, or is `< 0.001 %`."""
    if share is None:
        return None
    if 0 < abs(share) < _LEAST_SHARE:
        return "< 0.001 %"
    return f"{share:.3%}"[:-1] + " %" if 0 < abs(share) < _SMALL_SHARE else f"{share:.1%}"[:-1] + " %"


def duration(seconds: float | None) -> str | None:
    """`12.5 s`, `3 min 20 s`, `7 h 05 min`, `3 d 04 h`; `< 1 ms` for next to nothing."""
    if seconds is None:
        return None
    if 0 < seconds < _LEAST_S:
        return "< 1 ms"
    if seconds < 2 * _MINUTE_S:
        return f"{number(seconds, 1)} s"
    whole = round(seconds)
    if whole < _HOUR_S:
        return f"{whole // _MINUTE_S} min {whole % _MINUTE_S:02d} s"
    if whole < _DAY_S:
        return f"{whole // _HOUR_S} h {whole % _HOUR_S // _MINUTE_S:02d} min"
    return f"{whole // _DAY_S} d {whole % _DAY_S // _HOUR_S:02d} h"


def count(value: int | None) -> str | None:
    """A whole number, its thousands apart."""
    return None if value is None else f"{value:,}"


def scaled(value: float | None, name: str) -> str | None:
    """With the prefix that leaves 1 to 3 digits before the point: `4.04 k`, `1.23 E`."""
    if value is None:
        return None
    for size, prefix in _PREFIXES:
        if value >= size:
            return f"{value / size:.3g} {prefix}{name}"
    return f"{value:.3g} {name}"


def span(first: int | None, last: int | None) -> str | None:
    """`7`, or `7 to 9`; None where one of them is not known."""
    if first is None or last is None:
        return None
    return str(first) if first == last else f"{first} to {last}"


def numbers_of(ranks: Sequence[int], most: int = 8) -> str:
    """Ranks as text, neighbours together: `0 to 3, 9`; at most so many groups, and how many ranks there are
    in all.
    """
    groups: list[list[int]] = []
    for rank in ranks:
        if groups and rank == groups[-1][1] + 1:
            groups[-1][1] = rank
        else:
            groups.append([rank, rank])
    shown = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in groups[:most])
    return shown if len(groups) <= most else f"{shown} … ({len(ranks)} in all)"
