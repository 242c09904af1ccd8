"""What rank 0's writer asks, and what it makes of the answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.ranks.inquiry import Inquiry
from flagscale_perf.training.recording.questions import Questions
from flagscale_perf.training.requests import RequestFile
from flagscale_perf.writer.instrument import Remark
from tests.fakes import make_event, make_identity
from tests.unit.training.ranks.test_hang import doing
from tests.unit.training.ranks.test_inquiry import ANSWER, Process


class Asking:
    """The questions of a writer of two ranks, the first of which has this process."""

    def __init__(self, directory: Path) -> None:
        self.process, self.sent = Process(), list[Any]()
        self.path = directory / "request"
        own = Inquiry(make_identity(0), self.process)
        self.questions = Questions(RequestFile(self.path), own, 2, self.sent.append)

    def request(self, **content: Any) -> None:
        self.path.write_text(json.dumps(content))


def test_both_ranks_are_asked_and_their_answers_are_written_together(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.request(stacks=True)
    assert asking.questions.look(None) == [] and not asking.path.exists()
    (question,) = asking.process.asked
    assert asking.sent == [json.loads(question)]
    note = make_event()
    assert asking.questions.heard([note, doing(1)]) == [note]
    asking.process.answers[question] = json.dumps(ANSWER)
    first, second, told = asking.questions.look(None)
    assert (first.rank, second.rank) == (0, 1)
    assert isinstance(told, EventRecord) and told.name == "stacks"


def test_all_ranks_are_to_profile_the_same_iterations_and_rank_0_says_whether_it_does(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.request(profile=3)
    assert asking.questions.look(50) == []
    assert asking.sent == [{"profile": [50, 52]}]
    asking.process.answers['{"profile":[50,52]}'] = ""
    said = "3 iterations from 50 on are profiled, beside clean ones; they take longer"
    assert asking.questions.look(51) == [Remark("profile", said)]
    asking.request(profile=2)
    asking.questions.look(60)
    asking.process.answers['{"profile":[60,61]}'] = "another window is profiled, or will be"
    (refused,) = asking.questions.look(61)
    assert refused == Remark("profile", "not profiled: another window is profiled, or will be")


def test_what_cannot_be_met_is_refused_or_left_alone(tmp_path: Path) -> None:
    asking = Asking(tmp_path)
    asking.request(profile=2)
    (refused,) = asking.questions.look(None)
    assert refused == Remark("profile", "not profiled: too few steps have come to tell how long one takes")
    for content in ({"profile": 0}, {"profile": "two"}):
        asking.request(**content)
        assert asking.questions.look(50) == []
    assert asking.sent == []
