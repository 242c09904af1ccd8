"""What is said in the reader's language, from one table: English templates, and each in the language.

Programs read English: JSON, CSV and run files do not come here. A sentence that the table does not have stays
English, as does what a file or a user has named.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path

ENGLISH, CHINESE = "en", "zh"
_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts, as POSIX has it
_HOLE = re.compile(r"\{\d+\}")
DEPTH = "· "  # before the label of a part, once for each that it is a part of
_DEPTH = re.compile(f"(?:{DEPTH})+")
_JOINS = ("; ", ": ", ", ")  # between phrases that the table has one by one
_PROSE = re.compile(r"(?<![\w`./=-])[a-z]{2,} [a-z]{2,}(?![\w/=])")  # words that are not in the language
_ANCHOR = 10  # letters that an end of a text is worth, where several templates fit
_FEWEST_ALONE = 4  # letters of a template between single words
_MOST_JOINS, _LONGEST = 20, 1_000  # of a text that is taken apart; what is longer is a file's or hostile
_FEWEST = 8  # letters of a template that is tried before a sentence is taken apart at its joins
_FRAME = re.compile(r"\S+:\d+ in \S+")  # of a stack of Python
_WHO = re.compile(r"flagscale_perf[\w ]*: ")
_in_use = ENGLISH


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


def is_english() -> bool:
    """Whether nothing is to be put into another language."""
    return _in_use == ENGLISH


def say(template: str, *values: str) -> str:
    """The template in the language in use, with these values at its `{0}`, `{1}` ..."""
    return _word(template, _in_use).format(*values)


def said(text: str, language: str | None = None) -> str:
    """An English sentence in this language, without it in the one in use, as far as the table has it and its
    parts.
    """
    language = language or _in_use
    return text if language == ENGLISH or not text.strip() else _said(text, language)


def live(text: str) -> str:
    """A sentence that a run says unasked, on stderr and in its logs, in the language of the locale; who says
    it, as in `flagscale_perf: `, stays.
    """
    who = found[0] if (found := _WHO.match(text)) else ""
    return who + said(text.removeprefix(who), chosen(None, os.environ))


def learn() -> None:
    """Reads the table where the locale needs one, so that no sentence of a training waits for a file."""
    language = chosen(None, os.environ)
    if language != ENGLISH:
        _templates(language)


def _word(template: str, language: str) -> str:
    return template if language == ENGLISH else table(language).get(template, template)


@cache
def table(language: str) -> Mapping[str, str]:
    """Each English template of the language's table with what it is in the language."""
    text = Path(__file__).with_name(f"{language}.json").read_text(encoding="utf-8")
    found: dict[str, str] = json.loads(text)
    return found


@dataclasses.dataclass(frozen=True)
class _Template:
    """One of the table; a phrase that begins or ends like a part of a sentence has a hole there.

    Attributes:
        source: of its pattern, which most never need: a training that says its first sentence waits for none.
        longest: of its literals; `letters` are those of all, `weight` is more where it begins or ends a text.
        is_fragment: it is a part of a sentence.
    """

    source: str
    longest: str
    letters: int
    weight: int
    words: str
    is_fragment: bool

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        return re.compile(self.source, re.DOTALL)

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
        return cls(pattern, longest, letters, weight, words, begins or ends)

    def match(self, text: str, language: str) -> str | None:
        if self.longest not in text or (found := self.pattern.fullmatch(text)) is None:
            return None
        captured = found.groupdict()
        parts = {name: said(part, language) for name, part in captured.items()}
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
def _said(text: str, language: str) -> str:
    if (depth := _DEPTH.match(text)) is not None:
        return depth[0] + said(text[depth.end() :], language)
    if (exact := _exact(text, table(language))) is not None:
        return exact
    if len(text) > _LONGEST or _FRAME.fullmatch(text):
        return text
    whole = _templates(language)
    for each in whole:
        if each.letters >= _FEWEST and (made := each.match(text, language)) is not None:
            return made
    if (apart := _said_apart(text, language)) is not None:
        return apart
    short = (each for each in whole if each.letters < _FEWEST)
    return next((made for each in short if (made := each.match(text, language))), text)


def _exact(text: str, known: Mapping[str, str]) -> str | None:
    """The whole text; as a sentence begins, or a phase by its key."""
    as_words = text.replace("_", " ") if text.isidentifier() else text
    ways = (text, as_words, text[0].lower() + text[1:])
    return next((known[each] for each in ways if each in known), None)


def _said_apart(text: str, language: str) -> str | None:
    """What a join has on both sides, one by one; None where the table has neither, or only a part of one
    sentence.
    """
    for join in _JOINS:
        if text.count(join) > _MOST_JOINS:
            return _word(join, language).join(said(part, language) for part in text.split(join))
        first, _, rest = text.partition(join)
        if not first or not rest or first.count("(") != first.count(")"):
            continue
        made = said(first, language), said(rest, language)
        if made != (first, rest) and (join == _JOINS[0] or not any(map(_PROSE.search, made))):
            return made[0] + _word(join, language) + made[1]
    return None
