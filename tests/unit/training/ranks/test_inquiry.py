"""A rank is asked what it is doing: it answers, or is looked at from outside."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.ranks.inquiry import Inquiry, doing_of
from flagscale_perf.training.stacks import Stacks
from tests.fakes import make_identity
from tests.members import wait_for

ANSWER: dict[str, Any] = {
    "iteration": 41,
    "where": "step",
    "phase": "forward",
    "for_ns": 7,
    "stack": ["train.py:1 step"],
    "threads": {"loader": ["a.py:2 get"]},
    "collectives": [{"group": "0 (x)", "begun": 3, "is_over": True, "op": "gloo:all_reduce", "shapes": "[]"}],
    "debug_port": None,
}


class Process:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: dict[str, str] = {}

    def ask(self, question: str) -> None:
        self.asked.append(question)

    def answer(self, question: str) -> str | None:
        return self.answers.get(question)


class Asking:
    def __init__(self) -> None:
        self.now_ns, self.process = 0, Process()
        seen = Stacks(["train.py:9 step"], {}, "py-spy", "stopped")
        self.inquiry = Inquiry(make_identity(3), self.process, lambda pid: seen, lambda: self.now_ns)


def test_a_question_is_asked_once_and_its_answer_taken_once() -> None:
    asking = Asking()
    for request in ({"ask": 1}, {"ask": 1, "capture": [1, 2]}, {"capture": [1, 2]}, None):
        asking.inquiry.request(request)
    assert asking.process.asked == ['{"ask":1}']
    assert asking.inquiry.take() == []
    asking.process.answers['{"ask":1}'] = json.dumps(ANSWER)
    (found,) = asking.inquiry.take()
    assert (found.rank, found.iteration, found.phase, found.source) == (3, 41, "forward", "itself")
    assert asking.inquiry.take() == []
    asking.inquiry.request({"ask": 2})
    assert asking.process.asked == ['{"ask":1}', '{"ask":2}']


def test_a_process_that_does_not_answer_is_looked_at_after_three_seconds() -> None:
    asking = Asking()
    asking.now_ns = 1
    asking.inquiry.request({"ask": 1})
    asking.now_ns = 3 * NS_PER_S
    assert asking.inquiry.take() == []
    asking.now_ns = 4 * NS_PER_S
    found: list[Any] = []
    wait_for(lambda: bool(found.extend(asking.inquiry.take()) or found))
    assert (found[0].where, found[0].stack, found[0].source) == (None, ["train.py:9 step"], "py-spy")
    assert found[0].state == "stopped"


def test_steps_are_profiled_or_it_says_why_not() -> None:
    asking = Asking()
    asking.inquiry.request({"profile": [5, 7]})
    assert asking.inquiry.refusal() is None
    asking.process.answers['{"profile":[5,7]}'] = "no model"
    assert (asking.inquiry.refusal(), asking.inquiry.refusal()) == ("no model", None)
    asking.inquiry.request({"profile": [5, 7], "ask": 1})
    assert asking.process.asked == ['{"profile":[5,7]}', '{"ask":1}']


def test_an_answer_from_another_node_comes_back_as_it_was_and_a_damaged_one_is_refused() -> None:
    made = doing_of(ANSWER, make_identity(3))
    assert doing_of(json.loads(json.dumps(asdict(made)))) == made
    for name, value in (("rank", -1), ("where", "moon"), ("phase", "x"), ("stack", [1]), ("threads", [])):
        with pytest.raises(ValueError, match="."):
            doing_of(asdict(made) | {name: value})
