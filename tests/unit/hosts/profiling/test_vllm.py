"""The plug-in on a stand-in for vLLM's worker; tests/vllm has the real one."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.hosts.profiling import vllm
from flagscale_perf.profile import profiler as profilers
from flagscale_perf.profile.analysis.communication import label_of
from flagscale_perf.profile.options import ProfileOptions, Steps
from tests.unit.hosts.profiling.test_vllm_work import scheduled

PREFILL = scheduled({"a": (0, 4)}, {})
DECODE = scheduled({}, {"a": (4, 1, 1)})
NOTHING = scheduled({}, {})


class Worker:
    rank = 1

    def __init__(self, output: Any) -> None:
        self._output = output

    def execute_model(self, scheduler_output: Any) -> Any:
        return self._output

    def sample_tokens(self, grammar: Any) -> str:
        return f"tokens {grammar}"

    def get_model(self) -> None:
        pass

    def shutdown(self) -> None:
        pass


class FakeProfiler:
    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def begin_step(self, iteration: int | None, phase: str) -> None:
        self.heard.append(("begin", iteration, phase))

    def end_step(self, samples: int, tokens: int, attended: int) -> None:
        self.heard.append(("end", samples, tokens, attended))

    def close(self) -> None:
        self.heard.append(("close",))


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """vLLM's module of the worker's wrapper."""

    class WorkerWrapperBase:
        def __init__(self, output: Any = None) -> None:
            self.worker = Worker(output)

        def execute_model(self, scheduler_output: Any) -> Any:
            return self.worker.execute_model(scheduler_output)

        def shutdown(self) -> None:
            self.worker.shutdown()

        def __getattr__(self, name: str) -> Any:
            return getattr(self.worker, name)

    made = ModuleType(vllm.WORKER_MODULE)
    made.WorkerWrapperBase = WorkerWrapperBase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, vllm.WORKER_MODULE, made)
    return made


@pytest.fixture
def profiler(monkeypatch: pytest.MonkeyPatch) -> FakeProfiler:
    fake = FakeProfiler()
    monkeypatch.setattr(profilers, "Profiler", lambda model, options, rank: fake)
    monkeypatch.setattr(vllm, "rank_of", lambda wrapper: SimpleNamespace(number=1))
    return fake


@pytest.fixture
def installed(module: ModuleType, profiler: FakeProfiler, tmp_path: Path) -> Iterator[vllm.Installation]:
    installation = vllm.install(ProfileOptions(Steps(1, 2), tmp_path))
    yield installation
    installation.undo()


def test_the_first_step_of_each_phase_is_not_counted(
    module: ModuleType, profiler: FakeProfiler, installed: vllm.Installation
) -> None:
    wrapper = module.WorkerWrapperBase()
    for step in (PREFILL, DECODE, NOTHING, PREFILL, DECODE, DECODE):
        assert wrapper.execute_model(step) is None
        if step is not NOTHING:
            assert wrapper.sample_tokens("grammar") == "tokens grammar"
    wrapper.shutdown()
    assert profiler.heard == [
        ("begin", 1, "prefill"),
        ("end", 1, 4, 16),
        ("begin", 1, "decode"),
        ("end", 1, 1, 5),
        ("begin", 2, "decode"),
        ("end", 1, 1, 5),
        ("close",),
    ]


class Group:
    def __init__(self, group_desc: str) -> None:
        self.group_desc = group_desc

    def _set_group_desc(self, name: str) -> None:
        self.group_desc = name


def test_process_groups_have_vllms_names_while_its_steps_are_profiled(
    module: ModuleType,
    profiler: FakeProfiler,
    installed: vllm.Installation,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    groups = [Group("undefined"), Group("undefined"), Group("pp:device")]
    tp = SimpleNamespace(unique_name="tp:0", device_group=groups[0], cpu_group=groups[1])
    pp = SimpleNamespace(unique_name="pp:0", device_group=groups[2], cpu_group=None)
    theirs = SimpleNamespace(_groups={"tp:0": lambda: tp, "pp:0": lambda: pp, "gone:0": lambda: None})
    monkeypatch.setitem(sys.modules, vllm.GROUPS_MODULE, theirs)  # type: ignore[misc]
    wrapper = module.WorkerWrapperBase()
    for _ in range(2):
        wrapper.execute_model(PREFILL)
        wrapper.sample_tokens("grammar")
    assert [each.group_desc for each in groups] == ["tp", "tp cpu", "pp:device"]
    assert [label_of(f"{each.group_desc} 0-1") for each in groups] == ["TP", "TP", "PP"]
    wrapper.shutdown()
    assert [each.group_desc for each in groups] == ["undefined", "undefined", "pp:device"]


def test_a_step_that_samples_itself_is_over_with_execute_model(
    module: ModuleType, profiler: FakeProfiler, installed: vllm.Installation
) -> None:
    wrapper = module.WorkerWrapperBase("output")
    assert [wrapper.execute_model(PREFILL) for _ in range(2)] == ["output", "output"]
    assert profiler.heard == [("begin", 1, "prefill"), ("end", 1, 4, 16)]


def test_undo_leaves_the_class_as_it_was(module: ModuleType, profiler: FakeProfiler, tmp_path: Path) -> None:
    before = dict(vars(module.WorkerWrapperBase))
    installation = vllm.install(ProfileOptions(Steps(1, 2), tmp_path))
    assert vllm.install(ProfileOptions(Steps(5, 6), tmp_path)) is installation
    assert vars(module.WorkerWrapperBase)["execute_model"] is not before["execute_model"]
    installation.undo()
    assert dict(vars(module.WorkerWrapperBase)) == before


def test_a_rank_that_is_not_wanted(module: ModuleType, profiler: FakeProfiler, tmp_path: Path) -> None:
    installation = vllm.install(ProfileOptions(Steps(1, 2), tmp_path, ranks="0"))
    wrapper = module.WorkerWrapperBase()
    for _ in range(3):
        wrapper.execute_model(DECODE)
        wrapper.sample_tokens(None)
    installation.undo()
    assert profiler.heard == []


def test_a_failure_is_said_once_and_ends_the_profiling(
    module: ModuleType,
    installed: vllm.Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(wrapper: Any) -> Any:
        raise AttributeError("no rank")

    monkeypatch.setattr(vllm, "rank_of", broken)
    wrapper = module.WorkerWrapperBase("output")
    assert [wrapper.execute_model(PREFILL) for _ in range(4)] == ["output"] * 4
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "steps are no longer profiled" in said and "AttributeError: no rank" in said


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("", ""),
        (
            "three",
            "nothing is profiled in process {pid}: FLAGSCALE_PERF_PROFILE_STEPS: 'three' does not name steps;"
            " write for example 20-22",
        ),
    ],
)
def test_the_environment_switches_it_on(
    steps: str,
    said: str,
    module: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    import os

    before = dict(vars(module.WorkerWrapperBase))
    monkeypatch.setenv("FLAGSCALE_PERF_PROFILE_STEPS", steps)
    vllm.from_environment()
    assert dict(vars(module.WorkerWrapperBase)) == before
    assert said.format(pid=os.getpid()) in capsys.readouterr().err


def test_it_imports_neither_torch_nor_vllm(run_python: Any) -> None:
    code = (
        "import sys; from flagscale_perf.hosts.profiling import vllm; vllm.from_environment();"
        "print(sorted({'torch', 'vllm', 'numpy'} & set(sys.modules)))"
    )
    ended = run_python("-c", code)
    assert (ended.returncode, ended.stdout) == (0, "[]\n")


@pytest.mark.parametrize(
    ("mode", "graphs", "expected"),
    [("NONE", "NONE", "eager"), ("VLLM_COMPILE", "NONE", "compiled"), ("VLLM_COMPILE", "FULL", "graphs")],
)
def test_mode(mode: str, graphs: str, expected: str) -> None:
    config = SimpleNamespace(mode=SimpleNamespace(name=mode), cudagraph_mode=SimpleNamespace(name=graphs))
    assert vllm.mode_of(config) == expected


def test_rank_of_a_worker() -> None:
    """The third of four workers of the second of two replicas: tensor-parallel rank 0 of stage 1."""
    parallel = SimpleNamespace(
        tensor_parallel_size=2,
        pipeline_parallel_size=2,
        data_parallel_size=2,
        data_parallel_rank=1,
        enable_expert_parallel=False,
    )
    compilation = SimpleNamespace(mode=SimpleNamespace(name="NONE"))
    wrapper = SimpleNamespace(
        vllm_config=SimpleNamespace(parallel_config=parallel, compilation_config=compilation),
        worker=SimpleNamespace(rank=2),
    )
    rank = vllm.rank_of(wrapper)
    assert (rank.rank, rank.world_size, rank.host) == (6, 8, "vllm")
    assert rank.mode == "eager"
    assert (rank.tensor, rank.tensor_size, rank.pipeline, rank.pipeline_size) == (0, 2, 1, 2)
    assert (rank.data, rank.data_size, rank.expert, rank.expert_size) == (1, 2, None, None)
