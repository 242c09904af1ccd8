"""PerfMonitor around loops without Megatron, in processes of their own: the files are what counts."""

import json
import time
from types import SimpleNamespace

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.flops_calculator import ModelShape, step_flops
from flagscale_perf.monitor import PerfMonitor, Training
from flagscale_perf.spine.errors import PerfError
from tests.processes.flagscale import AGENT
from tests.warm_ranks import warm_environment

LOOP = """
from types import SimpleNamespace
from flagscale_perf.monitor import PerfMonitor, Training
sizes = {f"{name}_model_parallel_size": 1 for name in ("tensor", "pipeline", "expert")}
config = SimpleNamespace(bf16=True, fp16=False, context_parallel_size=1, **sizes)
model = SimpleNamespace(config=config)
"""


@pytest.fixture
def run_loop(run_python, tmp_path):
    """Runs a script with the monitor on, in a warm process."""

    def run(code, **env):
        script = tmp_path / "loop.py"
        script.write_text(LOOP + code)
        options = {"FLAGSCALE_PERF_ENABLE_MONITOR": "1", "FLAGSCALE_PERF_LOG_DIR": "perf"}
        return run_python(AGENT, "as-it-is", script, env=warm_environment() | options | env)

    return run


@pytest.fixture
def sessions(run_loop, tmp_path):
    """Runs a script; gives its result and (facts, steps, end reason) of each session."""

    def run(code, **env):
        done = run_loop(code, **env)
        found = []
        for path in (tmp_path / "perf").glob("perf_records_*.jsonl"):
            rows = ended(path)
            steps = [row for row in rows if row["kind"] == "step"]
            found.append((rows[0]["facts"], steps, *[row["reason"] for row in rows if row["kind"] == "end"]))
        return done, sorted(found, key=lambda session: session[0]["resume_iteration"])

    return run


def ended(path):
    """The rows of a run file. On a busy machine its writer ends later than the process."""
    deadline = time.monotonic() + 120
    while True:
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        if rows and rows[-1]["kind"] == "end" or time.monotonic() > deadline:
            return rows
        time.sleep(0.05)


def complaints(done):
    """What the monitor says on stderr, or what came out of it. Python and torch have their own words there:
    Python 3.12 warns of a fork beside threads, newer builds of torch count what they leave at the end.
    """
    ours = ("flagscale_perf: ", "Traceback", "Exception ignored", "Exception in thread", "Fatal Python error")
    return [line for line in done.stderr.splitlines() if line.startswith(ours)]


def test_repeated_training_in_one_process_is_one_history_in_two_sessions(sessions):
    done, ((first, before, ended), (second, after, completed)) = sessions("""
try:
    with PerfMonitor(model, Training(8, 2, 4, 5)) as monitor:
        for iteration in range(1, 5):
            with monitor.step() as step:
                step.updated = iteration != 2
                if iteration == 4:
                    raise ConnectionError("a rank was lost")
except ConnectionError:
    pass
with PerfMonitor(model, Training(8, 2, 4, 5, iteration=3, consumed_samples=12)) as monitor:
    for iteration in (4, 5):
        with monitor.step() as step:
            step.samples, step.tokens = 2, 9
        with monitor.evaluation():
            pass
        with monitor.checkpoint():
            pass
""")
    assert (done.returncode, complaints(done)) == (0, [])
    assert (ended, completed) == ("exception ConnectionError", "completed")
    assert [
        (step["iteration"], step["outcome"], step["samples"], step["tokens"], step["skipped_samples"])
        for step in before
    ] == [
        (1, 0, 4, 32, 0),
        (2, 1, 0, 0, 4),
        (3, 0, 4, 32, 0),
    ]
    assert [(step["iteration"], step["samples"], step["tokens"], step["warmup"]) for step in after] == [
        (4, 2, 9, 1),
        (5, 2, 9, 0),
    ]
    assert all(step["eval_ns"] > 0 and step["checkpoint_ns"] > 0 for step in after)
    assert (first["resume_iteration"], second["resume_iteration"]) == (0, 3)
    counters, missing = first["missing"]
    assert counters.startswith("hardware counters (")
    assert missing.endswith(
        "(model: SimpleNamespace is not a GPTModel of Megatron-Core; only that can be counted)"
    )
    assert f"flagscale_perf: not available: {missing}" in done.stdout


def test_a_loop_with_the_monitors_timers_has_phases(run_loop, tmp_path):
    done = run_loop(
        """
monitor = PerfMonitor(model, Training(8, 2, 4))
config.timers = timers = monitor.timers
timers("optimizer").start()  # nothing yet
with monitor:
    for iteration in range(2):
        timers("batch-generator").start()  # between the steps
        timers("batch-generator").stop()
        with monitor.step():
            timers("forward-backward", log_level=1).start(barrier=False)
            timers("forward-compute", log_level=2).start()
            timers("forward-compute").stop()
            timers("forward-backward").stop()
""",
        FLAGSCALE_PERF_BREAKDOWN="1",
    )
    assert (done.returncode, complaints(done)) == (0, [])
    (path,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    phases, steps = ([row for row in rows if row["kind"] == kind] for kind in ("phases", "step"))
    assert [row["iteration"] for row in phases] == [1, 2]
    for row, step in zip(phases, steps, strict=True):
        own = {name: value for name, value in row.items() if name.endswith("_ns") and value is not None}
        assert own.keys() == {"forward_ns", "forward_backward_other_ns", "other_ns", "between_steps_ns"}
        assert sum(own.values()) == step["iteration_ns"]


def test_other_ranks_and_a_monitor_that_is_off_write_nothing(sessions):
    code = (
        "with PerfMonitor(model, Training(8, 2, 4)) as monitor:\n    with monitor.step(), "
        "monitor.evaluation(), monitor.checkpoint(): pass"
    )
    for env in ({"RANK": "1"}, {"FLAGSCALE_PERF_ENABLE_MONITOR": "0"}):
        done, found = sessions(code, **env)
        assert (done.returncode, done.stdout, complaints(done), found) == (0, "", [], [])


@pytest.mark.parametrize("name", ["seq_length", "micro_batch_size", "global_batch_size"])
def test_a_wrong_size_is_refused_before_training(name):
    sizes = {"seq_length": 8, "micro_batch_size": 2, "global_batch_size": 4} | {name: 0}
    with pytest.raises(PerfError, match=f"Training.{name} is 0; give a whole number above 0"):
        PerfMonitor(SimpleNamespace(), Training(**sizes), PerfConfig())


def test_a_wrong_variable_is_refused_before_training(monkeypatch):
    monkeypatch.setenv("FLAGSCALE_PERF_LOG_INTERVAL", "never")
    with pytest.raises(PerfError, match="FLAGSCALE_PERF_LOG_INTERVAL"):
        PerfMonitor(SimpleNamespace(), Training(8, 2, 4))


def test_trainings_of_one_process_leave_neither_models_nor_memory_behind(run_loop):
    done = run_loop(
        """
import gc, os, time, weakref

class Model:
    config = config

def train():
    model = Model()
    with PerfMonitor(model, Training(8, 2, 4)) as monitor:
        with monitor.step():
            pass
    return weakref.ref(model)

def rings():
    links = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum("flagscale_perf" in os.readlink(link) for link in links if os.path.lexists(link))

models = [train() for _ in range(3)]
gc.collect()
print([model() for model in models])
deadline = time.monotonic() + 60
while rings() and time.monotonic() < deadline:  # given back when their writers have ended
    time.sleep(0.02)
print(rings())
""",
        RANK="0",
        WORLD_SIZE="2",
        LOCAL_RANK="0",
    )
    assert (done.returncode, complaints(done)) == (0, [])
    lines = done.stdout.splitlines()
    assert lines[-5:-3] == ["[None, None, None]", "0"]
    assert [line.startswith("flagscale_perf: summary in ") for line in lines[-3:]] == [True] * 3


def test_a_child_forked_in_a_step_that_leaves_through_the_loop_says_and_writes_nothing(sessions):
    done, ((_, steps, ended),) = sessions("""
import os, sys
with PerfMonitor(model, Training(8, 2, 4)) as monitor:
    numbers = monitor._loop.numbers
    monitor._loop.numbers = lambda result: 1 / 0 if os.getpid() != pid else numbers(result)
    pid = os.getpid()
    for iteration in range(3):
        with monitor.step():
            if os.fork() == 0:
                sys.exit(0)
            os.wait()
        if os.fork() == 0:
            with monitor.step(), monitor.evaluation():
                pass
            raise SystemExit(0)
        os.wait()
""")
    assert (done.returncode, complaints(done), ended) == (0, [], "completed")
    assert [step["iteration"] for step in steps] == [1, 2, 3]
    assert done.stdout.count("summary in") == 1


@pytest.mark.parametrize("env", [{}, {"FLAGSCALE_PERF_ENABLE_MONITOR": "0"}])
def test_what_a_step_is_told_wrongly_is_no_reason_to_end_a_training(sessions, env):
    done, _ = sessions(
        """
with PerfMonitor(model, Training(8, 2, 4)) as monitor:
    with monitor.step() as step:
        step.samples = None
print("trained")
""",
        **env,
    )
    assert done.returncode == 0
    assert "trained" in done.stdout
    (line,) = complaints(done)
    assert line.startswith("flagscale_perf: monitor switched off at ")


DESCRIBED = """
class Model:  # of no library
    def __init__(self, frozen):
        self.frozen = frozen

    def named_parameters(self):
        yield "weight", SimpleNamespace(requires_grad=not self.frozen)

llama = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64}
megatron = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "padded_vocab_size": 512,
            "max_position_embeddings": 64, "bf16": True, "tensor_model_parallel_size": 1}
"""
LLAMA = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2},
    **{"num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 64},
}
MEGATRON = {"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "padded_vocab_size": 512}


@pytest.mark.parametrize(
    ("described", "shape", "dtype"),
    [
        ("llama", ModelShape.from_hf(LLAMA), "fp32"),
        ("megatron", ModelShape.from_args(MEGATRON | {"max_position_embeddings": 64}), "bf16"),
    ],
)
def test_a_model_of_any_library_is_counted_as_the_loop_describes_it(sessions, described, shape, dtype):
    done, ((facts, steps, _),) = sessions(f"""{DESCRIBED}
training = Training(8, 2, 4, model={described}, host="a library 1.0")
with PerfMonitor([Model(frozen=False)], training) as monitor:
    with monitor.step():
        monitor.timers("optimizer").start()
        monitor.timers("optimizer").stop()
""")
    assert (done.returncode, complaints(done)) == (0, [])
    assert (facts["host"], facts["dtype"], facts["data_parallel"]) == ("a library 1.0", dtype, 1)
    assert [(step["tokens"], step["model_flops"]) for step in steps] == [
        (32, step_flops(shape, 4, 8).model_flops)
    ]


def test_a_described_model_with_frozen_weights_is_not_counted(sessions):
    _, ((facts, steps, _),) = sessions(f"""{DESCRIBED}
with PerfMonitor(Model(frozen=True), Training(8, 2, 4, model=llama)) as monitor:
    with monitor.step():
        pass
""")
    assert [step["model_flops"] for step in steps] == [None]
    assert any("model: weight is frozen" in each for each in facts["missing"])
