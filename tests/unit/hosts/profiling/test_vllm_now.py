"""A worker of vLLM whose steps are profiled when a request comes; the stand-in of `test_vllm`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.hosts.profiling import vllm, vllm_now
from flagscale_perf.profile import profiler as profilers
from flagscale_perf.profile.options import NOW_FILE, ProfileOptions
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
        assert (str(options.steps), options.shapes, options.memory) == ("1-1000000", False, False)
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


def ask(tmp_path: Path, name: str, seconds: float, requests: int | None = None, since_s: float = 0.0) -> None:
    content = {"name": name, "begin_unix_s": time.time() + since_s, "seconds": seconds, "requests": requests}
    (tmp_path / NOW_FILE).write_text(json.dumps(content))


def begun(serve: Callable[[Any], None], made: list[Finishing], work: Any, count: int = 1) -> None:
    """Serves until a step is profiled."""

    def is_there() -> bool:
        serve(work)
        return len(made) == count

    wait_for(is_there)


def test_nothing_is_profiled_before_somebody_asks(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    for work in (PREFILL, DECODE, DECODE):
        serve(work)
    ask(tmp_path, "left behind", 60.0, since_s=-vllm_now.FORGOTTEN_S)
    assert vllm_now.request_in(tmp_path) is None
    (tmp_path / NOW_FILE).write_text("no request")
    assert vllm_now.request_in(tmp_path) is None
    serve(DECODE)
    assert made == []


def test_so_many_requests_and_then_again(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    serve(PREFILL)
    ask(tmp_path, "first", 60.0, 2)
    begun(serve, made, DECODE)
    answered = scheduled({}, {"a": (5, 1, 2)})
    answered.finished_req_ids = {"b", "c"}
    serve(answered)
    wait_for(lambda: made[0].heard[-1] == ("finish",))
    serve(DECODE)
    assert made[0].heard == [
        ("begin", 1, "decode"),
        ("end", 1, 1, 5),
        ("begin", 2, "decode"),
        ("end", 1, 1, 6),
        ("finish",),
    ]
    ask(tmp_path, "second", 60.0, 1)
    begun(serve, made, PREFILL, 2)
    assert made[1].heard[0] == ("begin", 1, "prefill")


def test_a_window_of_seconds_ends_also_where_no_step_follows(
    serve: Callable[[Any], None], made: list[Finishing], tmp_path: Path
) -> None:
    ask(tmp_path, "first", 0.05)
    begun(serve, made, DECODE)
    wait_for(lambda: made[0].heard[-1] == ("finish",))
