"""What is printed in the reader's language, from one table: English templates, and each in the language.

Programs read English: JSON and CSV do not come here. A sentence that the table does not have stays English,
as does what a file or a user has named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from importlib import resources
from typing import Any, TypeVar

from flagscale_perf.analysis import blocks
from flagscale_perf.analysis.blocks import Cell, Findings, Quantity, Report
from flagscale_perf.analysis.tree import DEPTH
from flagscale_perf.report.format import shown

ENGLISH, CHINESE = "en", "zh"
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts, as POSIX has it
_HOLE = re.compile(r"\{\d+\}")
_DEPTH = re.compile(f"(?:{DEPTH})+")
_JOINS = ("; ", ": ", ", ")  # between phrases that the table has one by one
_PARTS = (
    *("forward", "backward", "optimizer", "other", "total"),
    *("good", "fair", "suspect", "watch", "anomaly"),
    *("completed", "running", "killed", "never"),
)
_PROSE = re.compile(r"(?<![\w`./=-])[a-z]{2,} [a-z]{2,}(?![\w/=])")  # words that are not in the language
_ANCHOR = 10  # letters that an end of a text is worth, where several templates fit
_FEWEST_ALONE = 4  # letters of a template between single words
_MOST_JOINS, _LONGEST = 20, 1_000  # of a text that is taken apart; what is longer is a file's or hostile
_FEWEST = 8  # letters of a template that is tried before a sentence is taken apart at its joins
_NAMES = (  # fields of blocks that nobody reads
    *("key", "colour", "colours", "style", "tone", "tones"),
    *("unit", "group", "groups", "chosen", "name", "path"),
)
_KEPT = ("content", "rows", "reading", "tree", "tone", "complaint")  # of a report: for programs
_in_use = ENGLISH
AnyT = TypeVar("AnyT")


def chosen(asked: str | None, environ: Mapping[str, str]) -> str:
    """The language asked for, else the locale's: Chinese for zh..., where stdout can encode it."""
    if asked is not None:
        return asked
    locale = next((environ[name] for name in _VARIABLES if environ.get(name)), "")
    if not locale.lower().startswith(CHINESE):
        return ENGLISH
    try:
        "中文".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return ENGLISH
    return CHINESE


@contextlib.contextmanager
def using(language: str) -> Iterator[None]:
    """What is said meanwhile is said in this language."""
    global _in_use  # a process speaks one language
    before, _in_use = _in_use, language
    try:
        yield
    finally:
        _in_use = before


def say(template: str, *values: str) -> str:
    """The template in the language in use, with these values at its `{0}`, `{1}` ..."""
    return _table().get(template, template).format(*values)


def said(text: str) -> str:
    """An English sentence in the language in use, as far as the table has it and its parts."""
    return text if _in_use == ENGLISH or not text.strip() else _said(text)


def translated(report: Report) -> Report:
    """The report as it is printed in the language in use; what is for programs stays as it is."""
    if _in_use == ENGLISH:
        return report
    parts = {
        each.name: _of_block(getattr(report, each.name))
        for each in dataclasses.fields(report)
        if each.name not in _KEPT
    }
    return dataclasses.replace(report, **parts)


def _of_block(value: Any) -> Any:
    if (known := _OF_TYPE.get(type(value))) is not None:
        return known(value)
    return _fields(value, ()) if dataclasses.is_dataclass(value) else value


def _of_pairs(value: blocks.Pairs) -> blocks.Pairs:
    return blocks.Pairs([(said(label), _cell(cell)) for label, cell in value.rows])


def _of_table(value: blocks.Table) -> blocks.Table:
    cells = [[_cell(cell) for cell in row] for row in value.rows]
    notes = [_cell(note) for note in value.notes]
    return dataclasses.replace(_fields(value, ("rows", "notes")), rows=cells, notes=notes)


def _of_lane(value: blocks.Lane) -> blocks.Lane:
    return dataclasses.replace(_fields(value, ("cells",)), cells=[_cell(cell) for cell in value.cells])


def _of_tile(value: blocks.Tile) -> blocks.Tile:
    return blocks.Tile(said(value.label), _cell(value.value), _cell(value.note))


def _of_findings(value: Findings) -> Findings:
    """What could not be judged; a finding is put into words by `report/findings`."""
    return Findings(
        value.found, [said(each) for each in value.unjudged], value.nothing and said(value.nothing)
    )


def _of_list(value: Any) -> Any:
    is_cell = isinstance(value, tuple) and any(isinstance(part, Quantity) for part in value)
    return _cell(value) if is_cell else [_of_block(each) for each in value]


_OF_TYPE: Mapping[type, Callable[[Any], Any]] = {
    str: said,
    list: _of_list,
    tuple: _of_list,
    blocks.Pairs: _of_pairs,
    blocks.Table: _of_table,
    blocks.Lane: _of_lane,
    blocks.Tile: _of_tile,
    Quantity: lambda value: value,
    Findings: _of_findings,
}


def _fields(value: AnyT, but: tuple[str, ...]) -> AnyT:
    parts: dict[str, Any] = {
        each.name: _of_block(getattr(value, each.name))
        for each in dataclasses.fields(value)  # type: ignore[arg-type]
        if each.name not in (*_NAMES, *but)
    }
    return dataclasses.replace(value, **parts)  # type: ignore[type-var]


def _cell(cell: Cell) -> Cell:
    """A cell in the language; a single word in it is a name, unless it is one of these."""
    if isinstance(cell, tuple) and all(isinstance(part, str | Quantity) for part in cell):
        cell = shown(cell)
    return said(cell) if isinstance(cell, str) and (" " in cell or cell in _PARTS) else cell


def _table() -> Mapping[str, str]:
    return {} if _in_use == ENGLISH else table(_in_use)


@cache
def table(language: str) -> Mapping[str, str]:
    """Each English template of the language's table with what it is in the language."""
    text = resources.files(__package__).joinpath(f"{language}.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


@dataclasses.dataclass(frozen=True)
class _Template:
    """One of the table; a phrase that begins or ends like a part of a sentence has a hole there.

    Attributes:
        longest: of its literals; `letters` are those of all, `weight` is more where it begins or ends a text.
        is_fragment: it is a part of a sentence.
    """

    pattern: re.Pattern[str]
    longest: str
    letters: int
    weight: int
    words: str
    is_fragment: bool

    @classmethod
    def of(cls, english: str, words: str) -> _Template:
        literals, holes = _HOLE.split(english), _HOLE.findall(english)
        pattern = re.escape(literals[0])
        for hole, before, behind in zip(holes, literals[:-1], literals[1:], strict=True):
            # What Chinese leaves out is the ending of a plural; behind a letter there may be nothing.
            some = "*" if before[-1:].isalnum() or before[-1:] == ")" else "+"
            one = "." if before.endswith("(") else "(?:(?!; ).)"  # a list is taken apart first
            found = f"(?P<h{hole[1:-1]}>{one}{some}?)" if hole in words else "(?:s|es)?"
            pattern += found + re.escape(behind)
        begins, ends = english[0] in " ,;:(", english[-1] in " :("
        if begins:
            pattern, words = f"(?P<before>.*?){pattern}", f"{{before}}{words}"
        if ends:
            pattern, words = f"{pattern}(?P<behind>.*?)", f"{words}{{behind}}"
        letters = sum(map(str.isalpha, "".join(literals)))
        longest = max(literals, key=len)
        words = _HOLE.sub(lambda hole: f"{{h{hole[0][1:-1]}}}", words)
        weight = letters + _ANCHOR * (bool(literals[0]) + bool(literals[-1])) * (not begins and not ends)
        return cls(re.compile(pattern, re.DOTALL), longest, letters, weight, words, begins or ends)

    def match(self, text: str) -> str | None:
        if self.longest not in text or (found := self.pattern.fullmatch(text)) is None:
            return None
        captured = found.groupdict()
        parts = {name: said(part) for name, part in captured.items()}
        if (self.is_fragment or self.letters < _FEWEST) and any(map(_PROSE.search, parts.values())):
            return None  # words in the order of two languages read in neither
        own = [name for name in captured if name[0] == "h"] or list(captured)
        if self.letters < _FEWEST and not all(
            parts[name] != captured[name] or self._fits(captured[name]) for name in own
        ):
            return None
        return self.words.format(**parts)

    def _fits(self, part: str) -> bool:
        """Whether a template of a few letters, which is found in any text, is meant around this part."""
        return any(map(str.isdigit, part)) or (self.letters > _FEWEST_ALONE and " " not in part)


@cache
def _templates(language: str) -> list[_Template]:
    made = [
        _Template.of(english, words)
        for english, words in table(language).items()
        if "{0}" in english or english[0] in " ,;:(" or english[-1] in " :("
    ]
    return sorted(made, key=lambda each: (-each.weight, each.is_fragment))


@lru_cache(maxsize=4096)
def _said(text: str) -> str:
    if (depth := _DEPTH.match(text)) is not None:
        return depth[0] + said(text[depth.end() :])
    exact = _table().get(text) or _table().get(text[0].lower() + text[1:])  # as a sentence begins
    if exact is not None:
        return exact
    if len(text) > _LONGEST:
        return text
    whole = _templates(_in_use)
    for each in whole:
        if each.letters >= _FEWEST and (made := each.match(text)) is not None:
            return made
    if (apart := _said_apart(text)) is not None:
        return apart
    return next((made for each in whole if each.letters < _FEWEST and (made := each.match(text))), text)


def _said_apart(text: str) -> str | None:
    """What a join has on both sides, one by one; None where the table has neither, or only a part of one
    sentence.
    """
    for join in _JOINS:
        if text.count(join) > _MOST_JOINS:
            return say(join).join(map(said, text.split(join)))
        first, _, rest = text.partition(join)
        if not first or not rest or first.count("(") != first.count(")"):
            continue
        made = said(first), said(rest)
        if made != (first, rest) and (join == _JOINS[0] or not any(map(_PROSE.search, made))):
            return made[0] + say(join) + made[1]
    return None
