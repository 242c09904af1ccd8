"""When a training hangs, and what is said of it; real ones: tests/processes/test_flagscale_hang.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.rank_records import DoingRecord
from flagscale_perf.training.ranks.hang import HangWatch, held_up_by, what_they_do
from tests.fakes import make_step

IN_CALL = ["torch/distributed/distributed_c10d.py:1 all_reduce", "/job/train.py:7 step"]
LOADING = ["python3.11/queue.py:171 get", "/job/data/loader.py:30 __next__", "/job/train.py:5 step"]


def doing(rank: int, where: str | None = "step", **changed: Any) -> DoingRecord:
    known: dict[str, Any] = {
        "hostname": "node0",
        "pid": 100 + rank,
        "iteration": 41,
        "phase": "exposed_grad_comm",
        "for_ns": 62 * NS_PER_S,
        "stack": IN_CALL,
        "threads": {},
        "collectives": [],
        "debug_port": None,
        "source": "itself",
        "state": "",
    }
    return DoingRecord(rank=rank, where=where, **(known | changed))


def collective(begun: int, is_over: bool) -> dict[str, Any]:
    return {"group": "1 (DP)", "begun": begun, "is_over": is_over, "op": "nccl:all_reduce", "shapes": "[[4]]"}


LOADER = doing(1, phase="data_loading", stack=LOADING, for_ns=63 * NS_PER_S)


class Watched:
    """A watch of two ranks, whose clock goes on by a second a look."""

    def __init__(self, *answers: DoingRecord) -> None:
        self.now_ns = 0
        self.asked: list[int] = []
        self.answers = answers
        self.watch = HangWatch(2, self.ask, lambda: self.now_ns)

    def ask(self, request: Mapping[str, int]) -> None:
        self.asked.append(request["ask"])
        for each in self.answers:
            self.watch.heard(each)

    def steps(self, count: int, iteration_s: float) -> None:
        for iteration in range(1, count + 1):
            self.watch.step(make_step(iteration, iteration_ns=round(iteration_s * NS_PER_S)))

    def look(self, seconds: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(seconds):
            self.now_ns += NS_PER_S
            found += self.watch.look()
        return found


def test_a_minute_without_a_step_is_a_hang_where_steps_are_short() -> None:
    watched = Watched(doing(0), LOADER)
    watched.steps(5, 0.5)
    assert watched.look(59) == [] == watched.asked
    *ranks, finding = watched.look(3)
    assert ranks == [doing(0), LOADER]
    assert isinstance(finding, FindingRecord)
    assert (finding.finding, finding.state, finding.severity) == ("hang", "begins", 61.0)
    assert finding.evidence == {"ranks": [1], "places": ["/job/data/loader.py:30 __next__"]}
    assert finding.text == (
        "no step for 61 s (usually one in 0.5 s): the others wait for rank 1 (node0, pid 101): for 63 s in"
        " data_loading, at job/data/loader.py:30 in __next__; rank 0 (node0, pid 100): for 62 s in"
        " exposed_grad_comm, at /job/train.py:7 in step"
    )
    assert watched.look(100) == []
    watched.watch.step(make_step(42))
    (over,) = watched.look(1)
    assert (over.state, over.text) == ("ends", "the hang is over: step 42 came after 162 s")


def test_ten_usual_steps_are_waited_for_where_they_are_long() -> None:
    watched = Watched(doing(0), LOADER)
    watched.steps(5, 20.0)
    assert watched.look(199) == []
    assert watched.look(3)[-1].text.startswith("no step for 201 s (usually one in 20 s): ")


def test_before_the_first_steps_it_takes_ten_minutes() -> None:
    watched = Watched(doing(0, "start", phase=None), doing(1, "start", phase=None))
    assert watched.look(599) == []
    assert "ranks 0, 1: for 62 s in preparation of the first step" in watched.look(3)[-1].text


@pytest.mark.parametrize("where", ["eval", "checkpoint"])
def test_an_evaluation_and_a_checkpoint_are_no_hang_however_long(where: str) -> None:
    watched = Watched(doing(0, where, phase=None), doing(1))
    watched.steps(5, 0.5)
    assert watched.look(1000) == []
    assert 80 < len(watched.asked) < 100


def test_time_in_which_the_writer_stood_still_is_no_silence() -> None:
    watched = Watched(doing(0), LOADER)
    watched.steps(5, 0.5)
    watched.now_ns += 3600 * NS_PER_S
    assert watched.look(50) == []


def test_a_rank_of_which_nothing_comes_is_named_after_a_while() -> None:
    watched = Watched(doing(0))
    watched.steps(5, 0.5)
    assert watched.look(74) == []
    *_, finding = watched.look(2)
    assert finding.evidence == {"ranks": [1], "places": []}
    assert (
        ": the others wait for rank 1: nothing comes from there; rank 0 (node0, pid 100): for" in finding.text
    )


def test_a_writer_that_takes_over_tells_the_end_and_not_the_beginning_again() -> None:
    first, second = Watched(doing(0), LOADER), Watched(doing(0), LOADER)
    first.steps(5, 0.5)
    for each in [*map(make_step, range(1, 6)), *first.look(62)]:
        second.watch.replay(each)
    assert second.look(62) == [] == second.asked
    second.watch.step(make_step(42))
    (over,) = second.look(1)
    assert over.state == "ends"


def test_somebody_asks() -> None:
    watched = Watched(doing(0, "eval", phase=None), LOADER)
    watched.watch.stacks()
    *ranks, event = watched.look(2)
    assert ranks == [doing(0, "eval", phase=None), LOADER]
    assert isinstance(event, EventRecord) and event.name == "stacks"


def test_where_all_are_in_a_collective_who_has_begun_fewer_is_behind() -> None:
    ahead = doing(0, collectives=[collective(42, False)])
    behind = doing(1, phase="forward", stack=["/job/train.py:9 step"], collectives=[collective(41, False)])
    assert held_up_by([ahead, behind]) == [behind]
    said = what_they_do([ahead, behind])
    assert said.startswith(
        "the others wait for rank 1 (node0, pid 101): for 62 s in forward, nccl:all_reduce 41 in group 1 (DP)"
    )
    both = [doing(rank, collectives=[collective(42, False)]) for rank in (0, 1)]
    assert held_up_by(both) == []
    assert what_they_do(both).endswith("; each waits for another: look at the network between them")


def test_a_process_that_does_not_answer_is_waited_for_wherever_it_is() -> None:
    stopped = doing(1, None, phase=None, for_ns=None, source="py-spy", state="stopped")
    said = what_they_do([doing(0), stopped])
    assert said.startswith(
        "the others wait for rank 1 (node0, pid 101): does not answer, as Python does not run"
    )
    assert " there (stopped), at /job/train.py:7 in step; rank 0 (" in said


def test_of_a_deadlock_both_threads_are_shown() -> None:
    locked = doing(1, phase="forward", stack=["/job/a.py:4 step"], threads={"worker": ["/job/b.py:9 run"]})
    assert "in forward, at /job/a.py:4 in step; thread worker at /job/b.py:9 in run; rank 0" in what_they_do(
        [doing(0), locked]
    )
