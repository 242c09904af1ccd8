"""Real FlagScale 0.8.0, unmodified, with and without the monitor: same losses to the bit, same integers, same
times.
"""

import statistics
from itertools import accumulate

import pytest

from flagscale_perf.training.records import Outcome
from tests.processes import flagscale as fs
from tests.processes import padded_stages
from tests.processes.shared_runs import ITERATIONS, SHAPES, with_monitor, without

pytestmark = pytest.mark.host

QUICK = ("1 rank", "TP2", "DP2")


@pytest.mark.parametrize(
    "shape", [shape if shape in QUICK else pytest.param(shape, marks=pytest.mark.long) for shape in SHAPES]
)
def test_the_host_trains_the_same_and_the_records_are_its_own_integers(shape, tmp_path_factory):
    off, on = without(tmp_path_factory, shape), with_monitor(tmp_path_factory, shape)
    losses = fs.host_losses(on.directory / "tb")
    assert [step for step, _ in losses] == list(range(1, ITERATIONS + 1))
    assert losses == fs.host_losses(off.directory / "tb")
    assert on.finished.lines == off.finished.lines

    perf, logged = on.directory / "perf", on.finished.logged
    steps = fs.records(perf)
    assert (
        [step["iteration"] for step in steps]
        == [line.iteration for line in logged]
        == list(range(1, ITERATIONS + 1))
    )
    consumed = 0
    for step, line in zip(steps, logged, strict=True):
        consumed += step["samples"]
        assert (consumed, step["tokens"], step["skipped_samples"]) == (
            line.consumed,
            step["samples"] * fs.SEQ_LENGTH,
            0,
        )
        assert step["outcome"] == Outcome.TRAINED
    assert [step["warmup"] for step in steps] == [1] + [0] * (ITERATIONS - 1)
    assert len({step["model_flops"] for step in steps}) == 1 and steps[0]["model_flops"] > 0

    session = fs.summary(perf)["session_info"]
    assert (session["total_iterations"], session["end_reason"]) == (ITERATIONS, "completed")
    assert_times_agree(without_pauses(steps), logged, SHAPES[shape].ranks)
    rows = fs.records(perf, "phases")
    phases = assert_phases_add_up(rows, steps)
    assert phases >= {
        "data_loading_ns",
        "forward_ns",
        "backward_ns",
        "exposed_grad_comm_ns",
        "optimizer_inner_step_ns",
        "zero_grad_ns",
        "exposed_stat_comm_ns",
    }
    assert ("pipeline_recv_wait_ns" in phases) == (shape == "PP2")
    others = [row["other_ns"] / step["iteration_ns"] for row, step in zip(rows, steps, strict=True)]
    assert statistics.median(others) <= 0.02, others


def assert_phases_add_up(phases, steps):
    """Every step has its phases, and they are all of its time; returns the names of those that took any."""
    assert [row["iteration"] for row in phases] == [step["iteration"] for step in steps]
    named = set()
    for row, step in zip(phases, steps, strict=True):
        own = {name: value for name, value in row.items() if name.endswith("_ns") and value is not None}
        assert sum(own.values()) == step["iteration_ns"]
        assert own["between_steps_ns"] == step["iteration_ns"] - step["train_step_ns"]
        named |= own.keys()
    return named


def without_pauses(steps):
    """The host's timer stands still while it evaluates and saves."""
    return [{**step, "eval_ns": 0, "checkpoint_ns": 0} for step in steps]


def assert_times_agree(steps, logged, ranks=1):
    """The host measures from log line to log line, the monitor from step start to step start.

    With gap[k] = from the log line of k to the start of k + 1:  host[k] = monitor[k] + gap[k - 1] - gap[k].
    What is left is the host's rounding to 0.1 ms and, with several ranks, the wait at the barrier inside its
    log: it moves single iterations against each other and all but cancels in the sum of several. So does a
    machine that stops a rank between two clocks: it spoils the stretches that begin or end there. The median
    over all beginnings of the median over all ends (Siegel's repeated medians) bears three stops in eight.
    """
    whole = [step["iteration_ns"] + step["eval_ns"] + step["checkpoint_ns"] for step in steps]
    gaps = [total - step["log_ns"] for total, step in zip(whole, steps, strict=True)]
    expected_ms = [(whole[k] + gaps[k - 1] - gaps[k]) / 1e6 for k in range(1, len(steps))]
    host_ms = [line.elapsed_ms for line in logged[1:]]
    differences = [abs(ours - theirs) for ours, theirs in zip(expected_ms, host_ms, strict=True)]
    if ranks == 1:
        assert statistics.median(differences) <= 0.1 + 0.1 * statistics.median(host_ms), (
            expected_ms,
            host_ms,
        )
    ours, theirs = [0, *accumulate(expected_ms)], [0, *accumulate(host_ms)]
    rate = statistics.median(
        statistics.median((ours[k] - ours[j]) / (theirs[k] - theirs[j]) for k in range(len(ours)) if k != j)
        for j in range(len(ours))
    )
    assert rate == pytest.approx(1, rel=0.05 if ranks == 1 else 0.2), (expected_ms, host_ms)


def test_batch_rampup_and_skipped_iterations_count_what_was_trained(tmp_path):
    script = [
        fs.train_gpt(),
        *fs.SMALL,
        "--global-batch-size",
        "12",
        "--rampup-batch-size",
        "4",
        "4",
        "24",
        "--train-samples",
        "96",
        "--lr-decay-samples",
        "96",
        "--iterations-to-skip",
        "1",
        "--skip-iters-range",
        "3",
        "5",
    ]
    on = fs.run(
        fs.workers(1, *fs.launched(*script, "--enable-perf-monitor", "--perf-log-dir", "perf")), tmp_path
    )
    assert on.returncode == 0, on.output[-3000:]
    steps = fs.records(tmp_path / "perf")
    skipped = [
        (s["iteration"], s["iterations"], s["skipped_samples"])
        for s in steps
        if s["outcome"] == Outcome.DATA_SKIPPED
    ]
    assert [(iteration, count) for iteration, count, _ in skipped] == [(2, 1), (5, 2)]
    consumed = {}
    total = 0
    for step in steps:
        total += step["samples"] + step["skipped_samples"]
        consumed[step["iteration"]] = total
    for line in on.logged:
        assert consumed[line.iteration] == line.consumed
    trained = {s["iteration"]: s["samples"] for s in steps if s["outcome"] == Outcome.TRAINED}
    printed = {
        line.iteration: int(fs.GLOBAL_BATCH.search(text).group(1))
        for line, text in zip(on.logged, on.lines, strict=True)
    }
    assert trained == printed
    assert len(set(trained.values())) > 1, "the batch was to grow"
    flops = {s["samples"]: s["model_flops"] for s in steps if s["samples"]}
    assert len({flops[samples] / samples for samples in flops}) == 1


def test_evaluation_and_checkpoint_are_told_apart_and_a_resume_goes_on(tmp_path):
    checkpoints = [
        "--save",
        tmp_path / "ckpt",
        "--load",
        tmp_path / "ckpt",
        "--save-interval",
        "3",
        "--ckpt-format",
        "torch",
    ]
    arguments = [
        *fs.SMALL,
        *map(str, checkpoints),
        "--train-iters",
        "9",
        "--enable-perf-monitor",
        "--perf-log-interval",
        "2",
    ]

    def train(*more):
        finished = fs.run(fs.workers(1, *fs.launched(fs.train_gpt(), *arguments, *more)), tmp_path)
        assert finished.returncode == 0, finished.output[-3000:]

    train("--perf-log-dir", "perf", "--exit-interval", "6")
    train("--perf-log-dir", "perf2")
    steps = fs.records(tmp_path / "perf")
    by_checkpoint = sorted(steps, key=lambda step: step["checkpoint_ns"])
    assert {step["iteration"] for step in by_checkpoint[-2:]} == {3, 6}
    resumed = fs.records(tmp_path / "perf2")
    assert [step["iteration"] for step in resumed] == [7, 8, 9]
    assert [step["warmup"] for step in resumed] == [1, 0, 0]
    assert [(step["samples"], step["skipped_samples"]) for step in resumed] == [(4, 0)] * 3
    assert fs.records(tmp_path / "perf2", "header")[0]["facts"]["resume_iteration"] == 6


def test_megatrons_own_script_and_its_evaluation(tmp_path):
    script = [fs.root() / "third_party" / "Megatron-LM" / "pretrain_gpt.py", *fs.SMALL, "--train-iters", "6"]
    evaluation = ["--eval-iters", "1", "--eval-interval", "2"]
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-max-overhead",
        "100",
        "--perf-log-dir",
        "perf",
    ]
    # Steps so long that a processor which is lost between two clocks is no tenth of one.
    padded = [padded_stages.__file__, *script]
    words = fs.launched(*padded, *evaluation, *monitor)
    env = {"PADDED_FORWARD_S": "0.02", "PADDED_BACKWARD_S": "0.04"}
    finished = fs.run(fs.workers(1, *words), tmp_path, **env)
    assert finished.returncode == 0, finished.output[-3000:]
    steps = fs.records(tmp_path / "perf")
    assert (
        [step["iteration"] for step in steps]
        == [line.iteration for line in finished.logged]
        == [1, 2, 3, 4, 5, 6]
    )
    assert [step["eval_ns"] > 0 for step in steps] == [False, True] * 3
    assert fs.records(tmp_path / "perf", "header")[0]["facts"]["host"].startswith("Megatron-LM (core 0.15")
    assert_times_agree(without_pauses(steps), finished.logged)
    assert_phases_add_up(fs.records(tmp_path / "perf", "phases"), steps)
