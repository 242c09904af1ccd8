"""Asks a rank's process what it is doing. One that does not answer is looked at from outside.

The question goes the way on which the process has given its ring, and the answer comes through the ring; a
side thread of the process makes it, so that it comes as long as Python runs in there. Beside a training that
goes on, it costs that some tens of milliseconds, once.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, Protocol

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.jsonl import MAX_NS, dump
from flagscale_perf.spine.units import printable
from flagscale_perf.training import stacks
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import DoingRecord
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.stacks import Stacks

# Keys of a request, and of a question: the number of an inquiry; first and last profiled iteration.
ASK, PROFILE = "ask", "profile"
ANSWER_NS = 3 * NS_PER_S  # then the process is looked at from outside
_WHERE = ("start", "step", "between_steps", "eval", "checkpoint")
_MAX_LIST, _MAX_TEXT = 64, 256
_COLLECTIVE = {"group": str, "begun": int, "is_over": bool, "op": str, "shapes": str}


class Process(Protocol):
    """The process of a rank, as its drain has it."""

    def ask(self, question: str, /) -> None:
        """Asks it something; never waits."""

    def answer(self, question: str, /) -> str | None:
        """Its answer; None while there is none."""


class Inquiry:
    """Of one rank."""

    def __init__(
        self,
        who: RankIdentity,
        process: Process,
        look: Callable[[int], Stacks] = stacks.of_process,
        clock: Callable[[], int] = monotonic_ns,
    ) -> None:
        """`look`: what an unanswering process is looked at by; it may take seconds."""
        self._who, self._process, self._look, self._clock = who, process, look, clock
        self._question: str | None = None
        self._asked_ns: int | None = None
        self._found: list[Stacks] = []
        self._looks = False
        self._profiled = ""  # the last question
        self._profile: str | None = None  # the same, as long as it is not answered

    def request(self, content: Any) -> None:
        """Asks what is new in the request: the number of an inquiry, steps to be profiled."""
        match content:
            case {"profile": [int(first), int(last)]}:
                if (question := dump({PROFILE: [first, last]})) != self._profiled:
                    self._profile = self._profiled = question
                    self._process.ask(question)
        match content:
            case {"ask": int(number)}:
                if (question := dump({ASK: number})) != self._question:
                    self._question, self._asked_ns = question, self._clock()
                    self._looks, self._found = False, []
                    self._process.ask(question)

    def refusal(self) -> str | None:
        """Once, why the process does not profile what it was asked to; "" if it does, None: not said yet."""
        answer = None if self._profile is None else self._process.answer(self._profile)
        if answer is not None:
            self._profile = None
        return answer

    def take(self) -> list[DoingRecord]:
        """The answer, once: the process's own, or what is seen from outside."""
        if self._asked_ns is None or self._question is None:
            return []
        if answer := self._process.answer(self._question):
            self._asked_ns = None
            return [doing_of(json.loads(answer), self._who)]
        if self._found:
            self._asked_ns = None
            return [_seen(self._who, self._found[0])]
        if not self._looks and self._clock() - self._asked_ns > ANSWER_NS:
            self._looks = True
            self._look_outside(self._found)
        return []

    def _look_outside(self, found: list[Stacks]) -> None:
        """On a thread, as the drain has others to serve."""

        def look() -> None:
            found.append(self._look(self._who.pid))

        try:
            threading.Thread(target=look, name="flagscale_perf stacks", daemon=True).start()
        except RuntimeError:  # no thread: the system's own word is at once there
            found.append(Stacks([], {}, ""))


def _seen(who: RankIdentity, seen: Stacks) -> DoingRecord:
    place = who.rank, who.hostname, who.pid
    return DoingRecord(
        *place, None, None, None, None, seen.main, seen.threads, [], None, seen.source, seen.state
    )


def doing_of(content: Any, who: RankIdentity | None = None) -> DoingRecord:
    """The record of an answer of `who`, or of one that came as JSON from another node, which is not trusted.
    Raises ValueError for damaged content.
    """
    try:
        given = dict(content) if who is None else {**content, **_of(who)}
        made = DoingRecord(
            rank=_number(given["rank"]),
            hostname=_text(given["hostname"]),
            pid=_number(given["pid"]),
            iteration=None if given["iteration"] is None else _number(given["iteration"]),
            where=None if given["where"] is None else _WHERE[_WHERE.index(given["where"])],
            phase=None if given["phase"] is None else PHASES[PHASES.index(given["phase"])],
            for_ns=None if given["for_ns"] is None else _number(given["for_ns"]),
            stack=_texts(given["stack"]),
            threads={_text(name): _texts(frames) for name, frames in _few(given["threads"].items())},
            collectives=[_collective(each) for each in _few(given["collectives"])],
            debug_port=None if given["debug_port"] is None else _number(given["debug_port"]),
            source=_text(given["source"]),
            state=_text(given["state"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no answer of a rank: {error}") from None
    return made


def _of(who: RankIdentity) -> dict[str, Any]:
    return {"rank": who.rank, "hostname": who.hostname, "pid": who.pid, "source": "itself", "state": ""}


def _collective(given: Any) -> dict[str, Any]:
    check: dict[type, Callable[[Any], Any]] = {str: _text, int: _number, bool: bool}
    return {name: check[kind](given[name]) for name, kind in _COLLECTIVE.items()}


def _texts(given: Any) -> list[str]:
    return [_text(each) for each in _few(given)]


def _few(given: Any) -> list[Any]:
    return list(given)[:_MAX_LIST]


def _text(given: Any) -> str:
    if type(given) is not str:
        raise ValueError("no text where one belongs")
    return printable(given[:_MAX_TEXT])


def _number(given: Any) -> int:
    if type(given) is not int or not 0 <= given < MAX_NS:
        raise ValueError("no number where one belongs")
    return given
