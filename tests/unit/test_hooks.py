"""The loop's events and the wall around them, with a loop and a logger that only note what they are told."""

import gc
import signal
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest

from flagscale_perf import hooks as hooks_module
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.hooks import StepNumbers, TrainingHooks
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.work import Microbatch

FACTS = RunFacts(
    package_version="0", host="fake", script="s.py", hostname="h", pid=1, world_size=1, restart_count=0,
    tensor_parallel=1, pipeline_parallel=1, data_parallel=1, context_parallel=1, expert_parallel=1,
    pipeline_schedule=None, device="CPU", rehearsal=True, dtype="bf16",
    peak_flop_per_s=None, peak_source="", flops_convention="causal_half", model_family=None, model=None,
    seq_length=8, micro_batch_size=2, global_batch_size=4, train_iters=3, resume_iteration=0,
    tensorboard_dir=None, missing=[],
)  # fmt: skip

GPT = {
    "num_layers": 1, "hidden_size": 8, "num_attention_heads": 2, "ffn_hidden_size": 32,
    "padded_vocab_size": 16, "seq_length": 8,
}  # fmt: skip


NO_COUNTERS = "hardware counters (CPU (rehearsal) has no id to find them by)"


class FakeLogger:
    """Stands in for PerfLogger: no process, no file."""

    started: "list[FakeLogger]" = []

    def __init__(self, config, facts, identity=None):
        self.identity = identity
        self.config, self.facts = config, facts
        self.records, self.events, self.reasons = [], [], []

    @classmethod
    def start(cls, config, facts, say, identity=None):
        cls.started.append(cls(config, facts, identity))
        return cls.started[-1]

    def answer_by(self, answering):
        self.answering = answering

    def step(self, record):
        self.records.append(record)

    def event(self, name, iteration, text):
        self.events.append((name, iteration, text))

    def end(self, reason):
        self.reasons.append(reason)

    def close(self, reason):
        assert self.reasons == [reason]
        return "perf/summary.json"


class FakeLoop:
    """A host that trains 4 samples of 8 tokens a step."""

    rehearsing = True

    def __init__(self, rank_0=True, config=None, facts=FACTS, model_args=None, ranks=None):
        self._rank_0, self._facts, self._ranks = rank_0, facts, ranks or {}
        self._config = config or PerfConfig(enable_perf_monitor=True)
        self._model_args = GPT if model_args is None else model_args
        self.finished, self.said = 0, []

    def rank(self):
        return 0 if self._rank_0 else 1

    def stage(self):
        return 0

    def lockstep(self):
        return self.rank()

    def microbatch(self):
        return Microbatch(1, 2, 8)

    def config(self):
        return self._config

    def facts(self, device):
        return replace(self._facts, device=device)

    def device_types(self):
        return self._ranks

    def model_args(self):
        return self._model_args

    def position(self):
        return self.finished, self.finished * 4

    def numbers(self, result):
        self.finished += 1
        return StepNumbers(self.finished, True, 4, 32, 2)

    def skipped_samples(self):
        self.finished += 1
        return 4

    def names_phases(self):
        return True

    def say(self, line):
        self.said.append(line)


@pytest.fixture(autouse=True)
def logger(monkeypatch):
    FakeLogger.started = []
    monkeypatch.setattr(hooks_module, "PerfLogger", FakeLogger)
    return FakeLogger


def test_a_training_in_pseudocode(logger):
    loop, hooks = FakeLoop(), TrainingHooks()
    hooks.train_start(loop)
    assert hooks.active
    hooks.loop_top()
    hooks.step_start()
    hooks.step_end("result")
    hooks.logged(None, None)
    hooks.pause("eval")
    hooks.resume("eval")
    hooks.data_skipped(hooks_module.monotonic_ns())
    hooks.step_start()
    hooks.step_end("result")
    hooks.train_end(None)
    (session,) = logger.started
    assert [(r.iteration, r.samples, r.skipped_samples) for r in session.records] == [
        (1, 4, 0),
        (2, 0, 4),
        (3, 4, 0),
    ]
    # qkv 2*3*8*8*32 tokens, core 4*4*8*8*8/2, out 2*8*8*32, mlp 2*2*8*32*32, logits 2*8*16*32; three times
    # with the backward
    forward = (
        2 * 3 * 8 * 8 * 32 + 4 * 4 * 8 * 8 * 8 // 2 + 2 * 8 * 8 * 32 + 2 * 2 * 8 * 32 * 32 + 2 * 8 * 16 * 32
    )
    assert session.records[0].model_flops == 3 * forward
    assert session.reasons == ["completed"]
    assert loop.said == [
        f"flagscale_perf: not available: {NO_COUNTERS}",
        "flagscale_perf: summary in perf/summary.json",
    ]
    assert not hooks.active


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "completed"), (SystemExit(), "completed"), (SystemExit(0), "completed"),
        (SystemExit(3), "exit 3"),
        (KeyboardInterrupt(), "interrupted"), (ValueError("x"), "exception ValueError"),
    ],
)  # fmt: skip
def test_the_reason_of_the_end(error, reason, logger):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.train_end(error)
    assert logger.started[0].reasons == [reason]


def test_a_failure_is_said_once_switches_off_and_keeps_what_was_finished(logger, capsys):
    loop, hooks = FakeLoop(), TrainingHooks()
    hooks.train_start(loop)
    hooks.step_start()
    hooks.step_end("result")
    loop.position = lambda: 1 / 0
    hooks.step_start()
    assert not hooks.active
    hooks.logged(None, None)
    hooks.train_end(None)
    (session,) = logger.started
    line = "monitor switched off at step_start: ZeroDivisionError: division by zero"
    assert capsys.readouterr().err == f"flagscale_perf: {line} (training goes on without it)\n"
    assert session.events == [("failure", 0, line)]
    assert [record.iteration for record in session.records] == [1]
    assert session.reasons == ["completed"]


def test_with_debug_a_failure_is_said_with_its_traceback(logger, capsys):
    loop, hooks = FakeLoop(config=PerfConfig(enable_perf_monitor=True, perf_debug=True)), TrainingHooks()
    hooks.train_start(loop)
    loop.position = lambda: 1 / 0
    hooks.step_start()
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        (
            "flagscale_perf: monitor switched off at step_start: ZeroDivisionError: division by zero "
            "(training goes on without it)"
        ),
        "Traceback (most recent call last):",
    ]
    assert said[-1] == "ZeroDivisionError: division by zero"


def test_a_failure_before_there_is_a_logger_is_said_too(logger, capsys):
    hooks = TrainingHooks()
    hooks.train_start(SimpleNamespace())
    hooks.train_end(None)
    assert "monitor switched off at train_start: AttributeError" in capsys.readouterr().err


def test_a_model_of_unknown_shape_has_no_flops_and_says_so(logger):
    loop, hooks = FakeLoop(model_args={"num_layers": 2}), TrainingHooks()
    hooks.train_start(loop)
    hooks.step_start()
    hooks.step_end("result")
    hooks.train_end(None)
    (session,) = logger.started
    assert (session.records[0].model_flops, session.records[0].samples) == (None, 4)
    assert session.facts.model is None
    assert len(session.facts.missing) == 2
    assert session.facts.missing[1].startswith("TFLOPS, MFU and HFU (")
    assert loop.said[1].startswith("flagscale_perf: not available: TFLOPS, MFU and HFU (")


FORWARD = 2 * 3 * 8 * 8 + 2 * 8 * 8 + 2 * 2 * 8 * 32 + 2 * 8 * 16  # of GPT, each token
PAIR = 2 * 2 * 8  # and each pair of tokens that see each other


@pytest.mark.parametrize(
    ("told", "tokens", "squared_lengths"),
    [((30, 200), 30, 200), ((None, 200), 32, 200), ((30, None), 30, 30 * 8), ((None, None), 32, 4 * 8 * 8)],
)
def test_packed_documents_count_with_their_own_lengths(told, tokens, squared_lengths, logger):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    for sums in (told, (None, None)):
        hooks.step_start()
        hooks.step_end("result")
        hooks.logged(*sums)
    hooks.train_end(None)
    first, second = logger.started[0].records
    assert (first.tokens, first.model_flops) == (tokens, 3 * (tokens * FORWARD + squared_lengths * PAIR // 2))
    assert first.hardware_flops == first.model_flops
    assert (second.tokens, second.model_flops) == (32, 3 * (32 * FORWARD + 4 * 8 * 8 * PAIR // 2))


def test_recomputation_that_varies_costs_the_hfu_and_says_so(logger):
    loop, hooks = (
        FakeLoop(model_args=GPT | {"recompute_granularity_per_stage_micro_batch": [[1, 1, 0]]}),
        TrainingHooks(),
    )
    hooks.train_start(loop)
    hooks.train_end(None)
    assert logger.started[0].facts.missing[1:] == [
        "HFU (recomputation varies by pipeline stage and micro-batch)"
    ]


def peak_of(logger, given, **loop):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=PerfConfig(enable_perf_monitor=True, perf_peak_tflops=given), **loop))
    hooks.train_end(None)
    facts = logger.started[-1].facts
    return facts.peak_flop_per_s, facts.peak_source


def test_the_users_peak_wins_over_the_table(logger):
    assert peak_of(logger, "10") == (1e13, "--perf-peak-tflops")
    assert peak_of(logger, "cpu=10,A800=312") == (1e13, "--perf-peak-tflops")


def test_without_one_there_is_the_reason(logger):
    unknown = (
        "no peak is known for 'CPU (rehearsal)'; set --perf-peak-tflops to the dense peak of one "
        "device to get MFU"
    )
    assert peak_of(logger, None) == peak_of(logger, "A800=312") == (None, unknown)


def test_devices_of_several_types_need_a_peak_each(logger):
    job = {"ranks": {"A800": 6, "BI-V150": 2}, "facts": replace(FACTS, world_size=8)}
    mean = (6 * 312 + 2 * 192) / 8
    assert peak_of(logger, "A800=312,BI-V150=192", **job) == (
        mean * 1e12, "--perf-peak-tflops, mean over 6 x A800=312 and 2 x BI-V150=192",
    )  # fmt: skip
    assert peak_of(logger, "312", **job)[0] is None
    assert peak_of(logger, "312", facts=replace(FACTS, world_size=8), ranks={"A800": 8})[0] == 312e12


def test_a_second_training_in_one_process_is_a_session_of_its_own(logger):
    hooks = TrainingHooks()
    for _ in range(2):
        hooks.train_start(FakeLoop())
        hooks.train_end(ValueError("restart"))
    assert [session.reasons for session in logger.started] == [["exception ValueError"]] * 2
    assert [session.facts.process_start_ns is None for session in logger.started] == [False, True]


def test_a_failure_in_a_later_training_is_said_again(logger, capsys):
    hooks = TrainingHooks()
    for _ in range(2):
        loop = FakeLoop()
        hooks.train_start(loop)
        loop.position = lambda: 1 / 0
        hooks.step_start()
        assert not hooks.active
        hooks.train_end(None)
    line = "monitor switched off at step_start: ZeroDivisionError: division by zero"
    assert capsys.readouterr().err == f"flagscale_perf: {line} (training goes on without it)\n" * 2
    assert [session.events for session in logger.started] == [[("failure", 0, line)]] * 2


def test_what_the_host_does_after_its_loop_is_no_part_of_the_last_iteration(logger, monkeypatch):
    marks = iter(range(0, 10_000, 100))
    monkeypatch.setattr(hooks_module, "monotonic_ns", lambda: next(marks))
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop())
    hooks.step_start()
    hooks.step_end("result")
    hooks.loop_left()
    left_ns = next(marks)
    hooks.train_end(None)
    (step,) = logger.started[0].records
    assert 0 < step.start_ns + step.iteration_ns < left_ns


def test_a_resume_is_an_event(logger):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(facts=replace(FACTS, resume_iteration=40)))
    hooks.train_end(None)
    assert logger.started[0].events == [("resume", 40, "resumed after iteration 40")]


class Watchdog(Exception):
    """What a host's own signal handler raises."""


def handler_of_args(*given):
    raise Watchdog


def handler(number, frame):
    raise Watchdog


@pytest.mark.parametrize("its_handler", [handler, handler_of_args, SimpleNamespace(method=handler).method])
def test_what_a_signal_handler_of_the_host_raises_inside_passes_and_the_monitor_goes_on(
    its_handler, logger, capsys
):
    loop, hooks = FakeLoop(), TrainingHooks()
    hooks.train_start(loop)
    position, before = loop.position, signal.signal(signal.SIGUSR1, its_handler)
    loop.position = lambda: signal.raise_signal(signal.SIGUSR1)
    try:
        with pytest.raises(Watchdog) as passed:
            hooks.step_start()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert passed.value.__context__ is None
    assert hooks.active
    loop.position = position
    hooks.step_start()
    hooks.step_end("result")
    hooks.train_end(None)
    assert [record.iteration for record in logger.started[0].records] == [1]
    assert logger.started[0].events == []
    assert capsys.readouterr().err == ""


def test_an_exception_that_only_looks_like_a_handlers_is_ours(capsys):
    def ours(number, frame):
        raise Watchdog

    TrainingHooks().attach(lambda: ours(10, None))
    assert (
        capsys.readouterr().err
        == "flagscale_perf: monitor switched off at attach: Watchdog:  (training goes on without it)\n"
    )


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit])
def test_an_interruption_passes_and_what_was_finished_is_kept(interruption, logger):
    loop, hooks = FakeLoop(), TrainingHooks()
    hooks.train_start(loop)
    hooks.step_start()
    hooks.step_end("result")
    loop.position = lambda: (_ for _ in ()).throw(interruption)
    with pytest.raises(interruption):
        hooks.step_start()
    hooks.train_end(interruption())
    (session,) = logger.started
    assert [record.iteration for record in session.records] == [1]
    assert session.reasons == ["interrupted" if interruption is KeyboardInterrupt else "completed"]


def test_an_exception_without_a_text_is_said_by_its_type(capsys):
    class Mute(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def fail():
        raise Mute

    TrainingHooks().attach(fail)
    assert (
        capsys.readouterr().err
        == "flagscale_perf: monitor switched off at attach: Mute (training goes on without it)\n"
    )


def test_a_stderr_that_raises_anything_is_no_reason_to_end_a_training(monkeypatch):
    monkeypatch.setattr(hooks_module.sys, "stderr", SimpleNamespace())  # AttributeError at the first use
    hooks = TrainingHooks()
    hooks.train_start(SimpleNamespace())
    assert not hooks.active


@pytest.mark.parametrize("fails", [False, True])
def test_the_hosts_loop_is_let_go_when_training_has_ended(fails, logger, monkeypatch):
    loop, hooks = FakeLoop(), TrainingHooks()
    if fails:
        monkeypatch.setattr(logger, "start", None)
    loop.say = print  # an adapter's `say` may be kept, until the summary is written
    hooks.train_start(loop)
    hooks.train_end(None)
    gone = weakref.ref(loop)
    del loop
    gc.collect()
    assert gone() is None
