"""A worker of vLLM whose steps are profiled when a request comes; the stand-in of `test_vllm`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.hosts.profiling import vllm, vllm_now
from flagscale_perf.profile import profiler as profilers
from flagscale_perf.profile.asked import REQUEST_FILE, Request, is_looked_into, request_in, requested
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.spine.jsonl import dump
from tests.members import wait_for
from tests.unit.hosts.profiling.test_vllm import DECODE, PREFILL, FakeProfiler
from tests.unit.hosts.profiling.test_vllm import module as module
from tests.unit.hosts.profiling.test_vllm_work import scheduled


class Finishing(FakeProfiler):
    def finish(self) -> None:
        self.heard.append(("finish",))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Finishing]:
    found: list[Finishing] = []

    def make(model: Any, options: ProfileOptions, rank: Any) -> Finishing:
        assert (str(options.steps), options.shapes, options.memory) == ("1-10/20", False, False)
        found.append(Finishing())
        return found[-1]

    monkeypatch.setattr(profilers, "Profiler", make)
    monkeypatch.setattr(vllm, "rank_of", lambda wrapper: SimpleNamespace(number=1))
    monkeypatch.setattr(vllm_now, "LOOK_S", 0.01)
    return found


@pytest.fixture
def serve(module: ModuleType, made: list[Finishing], tmp_path: Path) -> Iterator[Callable[[Any], None]]:
    installation = vllm.install(ProfileOptions(None, tmp_path))
    wrapper = module.WorkerWrapperBase()

    def step(work: Any) -> None:
        wrapper.execute_model(work)
        wrapper.sample_tokens("grammar")

    yield step
    installation.undo()


def asked(tmp_path: Path, name: str, seconds: float, **counts: int) -> AbstractContextManager[None]:
    """A request that stands as long as the block."""
    return requested(tmp_path, Request(name, time.time(), seconds, **counts))


def begun(serve: Callable[[Any], None], made: list[Finishing], work: Any, count: int = 1) -> None:
    """Serves until a step is profiled."""

    def is_there() -> bool:
        serve(work)
        return len(made) == count and bool(made[-1].heard)

    wait_for(is_there)


def is_finished(profiler: Finishing) -> bool:
    return profiler.heard[-1] == ("finish",)


def test_nothing_is_profiled_before_somebody_asks_and_a_server_is_known_to_be_there(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    assert is_looked_into(tmp_path) is False
    for work in (PREFILL, DECODE, DECODE):
        serve(work)
    wait_for(lambda: is_looked_into(tmp_path) is True)
    (tmp_path / REQUEST_FILE).write_text(dump(Request("of one who is gone", time.time(), 60.0)._asdict()))
    assert request_in(tmp_path) is None
    assert made == []


def test_so_many_requests_and_then_again(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    serve(PREFILL)
    with asked(tmp_path, "first", 60.0, requests=2):
        begun(serve, made, DECODE)
        answered = scheduled({}, {"a": (5, 1, 2)})
        answered.finished_req_ids = {"b", "c"}
        serve(answered)
        wait_for(lambda: is_finished(made[0]))
        serve(DECODE)
    steps = made[0].heard[:-1]
    assert steps[0] == ("begin", 1, "decode") and ("end", 1, 1, 6) not in steps
    with asked(tmp_path, "second", 60.0, requests=1):
        begun(serve, made, PREFILL, 2)
        assert made[1].heard[0] == ("begin", 1, "prefill")


def test_so_many_profiled_steps_each_beside_a_clean_one(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    with asked(tmp_path, "first", 60.0, steps=2):
        begun(serve, made, DECODE)

        def is_over() -> bool:
            serve(DECODE)
            return is_finished(made[0])

        wait_for(is_over)
    begins = [heard for heard in made[0].heard if heard[0] == "begin"]
    assert begins == [("begin", number, "decode") for number in (1, 2, 3, 4)]


def test_a_window_of_seconds_ends_also_where_no_step_follows(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    with asked(tmp_path, "first", 0.05):
        begun(serve, made, DECODE)
        wait_for(lambda: is_finished(made[0]))


def test_a_request_that_is_taken_back_ends_what_it_began(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    with asked(tmp_path, "first", 60.0):
        begun(serve, made, DECODE)
    wait_for(lambda: is_finished(made[0]))


def test_a_server_that_ends_has_written_what_was_profiled(
    module: ModuleType, made: list[Finishing], tmp_path: Path
) -> None:
    installation = vllm.install(ProfileOptions(None, tmp_path))
    wrapper = module.WorkerWrapperBase()
    with asked(tmp_path, "first", 60.0):
        begun(wrapper.execute_model, made, DECODE)
        wrapper.shutdown()
        assert is_finished(made[0])
    installation.undo()
