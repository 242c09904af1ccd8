"""Parsers of options' values: from text, or from what yaml makes of it, to the value. Each raises PerfError
with the wrong value and what to write instead.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import is_usable_name, local_path

MAX_NAME = 100  # characters of a run's name
LOOPBACK = "127.0.0.1"
_TRUE, _FALSE = {"1", "true", "yes", "on", "y", "t"}, {"0", "false", "no", "off", "n", "f"}
_ADDRESS_EXAMPLE = "write for example 9400, or 0.0.0.0:9400 for every address of the machine"
_COMMAND = "'/etc/training/tell.sh 7b'"
# Neither a password, which would be in the run file, nor a query.
_URL = re.compile(
    r"(?P<server>https?://(?:[\w.-]+|\[[\da-fA-F:]+\])(?::(?P<port>\d{1,5}))?)(?P<path>(?:/[\w./~%+-]*)?)"
)
_STEPS = re.compile(r"(\d+)(?:-(\d+))?(?:/(\d+))?")
_N = TypeVar("_N", int, float)


def parse_bool(text: str) -> bool:
    """True for "true", "1", "yes" or "on", False for their opposites, in any case."""
    word = str(text).strip().lower()
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise PerfError(f"{text!r} is neither true nor false; write true or false")


def whole(least: int, most: int, example: int) -> Callable[[str], int]:
    """A whole number, both limits included."""
    said = f"whole number from {least} to {most}; write for example {example}"
    return _number(int, lambda number: least <= number <= most, said)


def above_zero(most: float, example: str, unit: str = "") -> Callable[[str], float]:
    """A number above 0, the upper limit included."""
    said = f"number{unit} above 0 and up to {most:g}; write for example {example}"
    return _number(float, lambda number: 0 < number <= most, said)


def _number(convert: Callable[[str], _N], is_right: Callable[[_N], bool], said: str) -> Callable[[str], _N]:
    def parse(text: str) -> _N:
        with contextlib.suppress(ValueError):
            if is_right(number := convert(str(text).strip())):
                return number
        raise PerfError(f"{text!r} is not a {said}")

    return parse


def one_of(*words: str) -> Callable[[str], str]:
    """A parser that takes one of these words."""

    def parse(text: str) -> str:
        if str(text) not in words:
            raise PerfError(f"{text!r} is not one of {', '.join(words)}; write for example {words[0]}")
        return str(text)

    return parse


def words_for(parse: Callable[[str], object]) -> Callable[[str], str]:
    """The text itself, if the parser takes it: for a value that is handed on as text."""

    def checked(text: str) -> str:
        word = str(text).strip()
        parse(word)
        return word

    return checked


def path(example: str) -> Callable[[str], str]:
    """The name of a file or directory."""

    def parse(text: str) -> str:
        name = str(text)
        if not is_usable_name(name):
            raise PerfError(f"{text!r} is not a usable path; write for example {example}")
        return local_path(name)

    return parse


def one_line(text: str) -> str:
    """The text with a space for each stretch of white space."""
    return " ".join(text.split())


def run_name(text: object) -> str:
    """What a run is called in lists: one line."""
    name = one_line(str(text))
    if not name or len(name) > MAX_NAME:
        raise PerfError(
            f"{text!r} is not a name of 1 to {MAX_NAME} characters; write for example llama-7b-tp2"
        )
    return name


def command(text: str) -> str:
    """A command with its arguments, quoted as for a shell; none is started for it."""
    try:
        words = shlex.split(str(text))
    except ValueError as error:
        raise PerfError(f"{text!r} is no command: {error}; write for example {_COMMAND}") from None
    if not words:
        raise PerfError(f"{text!r} is no command; write for example {_COMMAND}")
    return str(text)


def http_url(path: str, example: str) -> Callable[[str], str]:
    """The address of an HTTP service; one without a path gets this one."""

    def parse(text: str) -> str:
        url = _URL.fullmatch(str(text).strip())
        if url is None or not 1 <= int(url["port"] or 1) <= 65535:
            raise PerfError(f"{text!r} is not the address of an HTTP service; write for example {example}")
        return f"{url['server']}{url['path'].rstrip('/') or path}"

    return parse


def absolute_path(suffix: str, example: str) -> Callable[[str], str]:
    """The absolute path of a file with this suffix."""
    usable = path(example)

    def parse(text: str) -> str:
        name = usable(text)
        if not os.path.isabs(name) or not name.endswith(suffix):
            raise PerfError(
                f"{text!r} is not an absolute path that ends in {suffix}; write for example {example}"
            )
        return name

    return parse


def keys(what: str, example: str) -> Callable[[str], str]:
    """Names with commas between them, each once."""

    def parse(text: str) -> str:
        found = [key.strip().lower() for key in str(text).split(",")]
        if not all(re.fullmatch(r"[a-z][a-z0-9_]*", key) for key in found):
            raise PerfError(f"{text!r} is not a list of {what}; write for example {example}")
        return ",".join(dict.fromkeys(found))

    return parse


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `9400` (on this machine only), `0.0.0.0:9400` or `[::1]:9400`."""
    host, colon, port = str(text).strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]") if colon else LOOPBACK
    if not _is_host(bare, is_bracketed=bare != host):
        raise PerfError(f"{text!r} is not an address to listen at; {_ADDRESS_EXAMPLE}")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65535):
        raise PerfError(f"{text!r} has no port from 1 to 65535; {_ADDRESS_EXAMPLE}")
    return bare, int(port)


def _is_host(bare: str, is_bracketed: bool) -> bool:
    # An IPv6 address needs its brackets: ::1:9400 could be an address without a port.
    if ":" in bare and not is_bracketed:
        return False
    return bool(bare) and bare.isprintable() and not any(char in " /[]" for char in bare)


@dataclass(frozen=True)
class Steps:
    """The steps to profile: as many as from `first` to `last`, beginning with `first`; the profiler may leave
    clean ones between them. As many again after every `every`.

    Attributes:
        first, last: as the host counts them, both included.
        every: steps from one window's first to the next one's; None: there is one window.
    """

    first: int
    last: int
    every: int | None = None

    @classmethod
    def parse(cls, text: str) -> Steps:
        """`20`, `20-22` or `20-22/100`."""
        match = _STEPS.fullmatch(str(text).strip())
        if match is None:
            raise PerfError(
                f"{text!r} does not name steps; write for example 20-22, or 20-22/100 for every 100"
            )
        first, last, every = int(match[1]), int(match[2] or match[1]), int(match[3]) if match[3] else None
        if first < 1 or last < first:
            raise PerfError(
                f"{text!r} does not name steps: the first is 1 and the last is not before the first"
            )
        if every is not None and every <= last - first:
            raise PerfError(
                f"{text!r}: a window of {last - first + 1} steps cannot begin every {every} steps"
            )
        return cls(first, last, every)

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" + (f"/{self.every}" if self.every else "")


def parse_ranks(text: str) -> frozenset[int]:
    """The ranks of a list such as `0,2-3`; at least one."""
    found: set[int] = set()
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            found.clear()
            break
        found.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    if not found:
        raise PerfError(f"{text!r} is not a list of ranks; write for example 0,2-3")
    return frozenset(found)
