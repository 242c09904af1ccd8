"""What one training step costs with the monitor, beside what a user would put into the loop instead.

All arms run in one process, in shuffled blocks of steps, around the same stand-in train step. What the
monitor adds is the difference to the same loop with the same timers without a listener; each difference
is between medians of one round, the figure is the median over the rounds. The bars are printed beside it;
exits 1 where one is missed.
"""

from __future__ import annotations

import logging
import logging.handlers
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head

ROUNDS = 40
BLOCK = 250  # steps of one arm in a round
SPIN = 40  # iterations of arithmetic in the stand-in: some microseconds


def spin(*_: Any) -> tuple[Any, ...]:
    """The stand-in for a train step."""
    total = 0
    for number in range(SPIN):
        total += number * number
    return {}, 0, False, False, 0, total, None


# What a step of one rank tells its timers with 2 micro-batches: 14 pairs.
NAMES = (
    *("batch-generator", "forward-compute", "backward-compute") * 2,
    *("forward-backward", "all-grads-sync", "embedding-grads-all-reduce"),
    *(
        "optimizer",
        "optimizer-copy-to-main-grad",
        "optimizer-inner-step",
        "optimizer-clip-main-grad",
        "interval-time",
    ),
)


class DummyTimer:
    """The host's, as its default log level gives it."""

    def start(self, barrier: bool = False) -> None: ...

    def stop(self, barrier: bool = False) -> None: ...


class Timers:
    """The host's way to a timer, which leads to the dummy."""

    def __init__(self) -> None:
        self._timers: dict[str, Any] = {}
        self._dummy_timer = DummyTimer()

    def __call__(self, name: str, log_level: int | None = None) -> Any:
        if name in self._timers:
            return self._timers[name]
        if log_level is None:
            log_level = 2
        assert log_level <= 2
        return self._dummy_timer


def timed(timers: Any) -> Callable[..., Any]:
    """The stand-in with the host's timers around it."""

    def step(*_: Any) -> tuple[Any, ...]:
        for name in NAMES:
            timers(name, log_level=2).start()
            timers(name).stop()
        return spin()

    return step


class Arm(NamedTuple):
    """Something to compare: a step, what ends it, and the monitor's hooks if they take part."""

    step: Callable[[], Any]
    close: Callable[[], None]
    hooks: Any = None


@contextmanager
def plain_python() -> Iterator[None]:
    """What is made inside does without the C extension."""
    from flagscale_perf.spine import hot

    extension, hot.extension = hot.extension, None
    yield
    hot.extension = extension


def has_extension() -> bool:
    """Whether the C extension was built."""
    from flagscale_perf.spine import hot

    return hot.extension is not None


def in_plain_python(maker: Callable[[Path], Arm]) -> Callable[[Path], Arm]:
    """The arm without the C extension; made with a first step, in which it makes what marks the phases."""

    def make(directory: Path) -> Arm:
        with plain_python():
            arm = maker(directory)
            arm.step()
        return arm

    return make


def loop(directory: Path, monitor: str, timers: bool, **options: Any) -> Arm:
    """A module with a Megatron loop's names and one pass of its loop, with the host's timers or none.

    `monitor`: "none" installed, "off" (installed and not asked for), "on", or on with "phases". `options` are
    further ones of `PerfConfig`.
    """
    from flagscale_perf.arguments import PerfConfig
    from flagscale_perf.hooks import TrainingHooks
    from flagscale_perf.hosts.megatron import HOOK_POINTS, MegatronLoop, patch_loop, patch_steps
    from flagscale_perf.hosts.patching import Patches

    model = dict(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        ffn_hidden_size=256,
        padded_vocab_size=1024,
        seq_length=64,
    )
    parallel = dict(tensor_model_parallel_size=1, pipeline_model_parallel_size=1, data_parallel_size=1)
    asked, breakdown = monitor in ("on", "phases"), monitor == "phases"
    options |= {
        "enable_perf_monitor": asked,
        "perf_log_dir": str(directory),
        "perf_breakdown": breakdown,
        "perf_max_overhead": 100,
    }
    config = PerfConfig(**options).as_dict()
    args = SimpleNamespace(
        **model, **parallel, **config, rank=0, world_size=1, curr_iteration=0, iteration=0,
        consumed_train_samples=0, micro_batch_size=2, global_batch_size=4, train_iters=ROUNDS * BLOCK,
        tensorboard_dir=None, bf16=False, fp16=False,
    )  # fmt: skip
    hooks, module, global_vars = (
        TrainingHooks(),
        ModuleType("loop"),
        ModuleType("megatron.training.global_vars"),
    )
    host_timers = Timers()
    vars(global_vars).update(get_args=lambda: args, get_timers=lambda: host_timers)
    sys.modules[global_vars.__name__] = global_vars
    sys.modules["megatron.core.num_microbatches_calculator"] = SimpleNamespace(get_num_microbatches=lambda: 2)  # type: ignore[assignment]
    vars(module).update({name: lambda *_, **__: None for name in HOOK_POINTS})
    vars(module).update(train_step=timed(host_timers) if timers else spin)
    if monitor != "none":
        patch_loop(module, hooks, Patches(), rehearsing=True)
        MegatronLoop.say = staticmethod(lambda line: None)  # type: ignore[method-assign]
        hooks.train_start(MegatronLoop(module, rehearsing=True))
    if hooks.active:  # as the wrapper of `train` does
        patch_steps(module, hooks, Patches())

    def step() -> None:
        sys.modules[global_vars.__name__] = global_vars
        module.update_num_microbatches(0, consistency_check=False)
        module.train_step()
        module.training_log()
        args.curr_iteration += 1
        args.consumed_train_samples += 4

    return Arm(step, lambda: hooks.train_end(None), hooks)


def summary_writer(directory: Path) -> Arm:
    """torch's SummaryWriter, the requirement's six scalars a step."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(directory))
    steps = iter(range(10**9))

    def step() -> None:
        spin()
        number = next(steps)
        for tag in (
            "tflops_per_gpu",
            "tflops_total",
            "samples_per_second",
            "tokens_per_second",
            "current_gb",
            "peak_gb",
        ):
            writer.add_scalar(tag, 1.0, number)

    return Arm(step, writer.close)


def rotating_file(directory: Path) -> Arm:
    """The standard library's RotatingFileHandler, one line a step."""
    handler = logging.handlers.RotatingFileHandler(directory / "perf.log", maxBytes=1 << 24, backupCount=2)
    logger = logging.getLogger("bench")
    logger.propagate = False
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)

    def step() -> None:
        spin()
        logger.info("%d %.2f %.2f %.1f %.1f %.1f %.2f", 10, 125.34, 1002.72, 512.0, 1048576.0, 235.5, 42.5)

    return Arm(step, handler.close)


MAKERS: dict[str, Callable[[Path], Arm]] = {
    "nothing": lambda directory: Arm(spin, lambda: None),
    "loop": lambda directory: loop(directory, "none", timers=False),
    "loop with its timers": lambda directory: loop(directory, "none", timers=True),
    "flagscale_perf": lambda directory: loop(directory, "on", timers=False),
    "flagscale_perf with phases": lambda directory: loop(directory, "phases", timers=True),
    "SummaryWriter, 6 scalars": summary_writer,
    "RotatingFileHandler, 1 line": rotating_file,
}
PLAIN = ", plain Python"
# Arm -> the arm it is compared with.
BASES = {
    "flagscale_perf": "loop",
    "flagscale_perf with phases": "loop with its timers",
    "flagscale_perf" + PLAIN: "loop",
    "flagscale_perf with phases" + PLAIN: "loop with its timers",
    "SummaryWriter, 6 scalars": "nothing",
    "RotatingFileHandler, 1 line": "nothing",
}
PHASES_BAR_US, PAIR_BAR_US = 10.0, 0.5


def measure(arms: dict[str, Arm]) -> dict[str, list[float]]:
    """Arm -> median microseconds of a step in each round; the arms take turns in an order drawn anew."""
    medians: dict[str, list[float]] = {name: [] for name in arms}
    order = list(arms)
    for _ in range(ROUNDS):
        random.shuffle(order)
        for name in order:
            step, times = arms[name].step, []
            for _ in range(BLOCK):
                start_ns = time.perf_counter_ns()
                step()
                times.append(time.perf_counter_ns() - start_ns)
            medians[name].append(statistics.median(times) / 1e3)
    return medians


def with_plain(makers: dict[str, Callable[[Path], Arm]]) -> dict[str, Callable[[Path], Arm]]:
    """These arms, and those of the monitor in plain Python, too, where that is not what they are."""
    plain = {name + PLAIN: in_plain_python(makers[name]) for name in makers if name + PLAIN in BASES}
    return makers | plain if has_extension() else makers


def main() -> int:
    """Runs every arm and prints one line for each comparison; 1 if a bar is missed."""
    random.seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        arms: dict[str, Arm] = {}
        for number, (name, maker) in enumerate(with_plain(MAKERS).items()):
            directory = Path(scratch, str(number))
            directory.mkdir()
            arms[name] = maker(directory)
        medians = measure(arms)
        for arm in arms.values():
            arm.close()
    added = {
        name: [us - base for us, base in zip(medians[name], medians[BASES[name]], strict=True)]
        for name in BASES
        if name in arms
    }
    print(head("spine", "training/recording", "hooks.py", "perf_metrics.py", "perf_logger.py"))
    print(
        f"monitor  {'with the C extension where no other is named' if has_extension() else 'in plain Python'}"
    )
    print(f"n        {ROUNDS} rounds of {BLOCK} steps an arm")
    print(f"{'added to one step':42} {'median us':>10} {'quartiles of the rounds':>26}  compared with")
    for name, values in added.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:42} {middle:10.1f} {f'{low:.1f} to {high:.1f}':>26}  {BASES[name]}")
    bars = {}
    for which in ("", PLAIN):
        if "flagscale_perf" + which in added:
            phases, alone = (
                statistics.median(added[f"flagscale_perf{what}{which}"]) for what in (" with phases", "")
            )
            bars["with phases" + which] = (phases, PHASES_BAR_US)
            bars["a start and a stop" + which] = ((phases - alone) / len(NAMES), PAIR_BAR_US)
    for what, (value, bar) in bars.items():
        print(f"{what:42} {value:10.2f} us, bar {bar} us: {'met' if value <= bar else 'missed'}")
    return int(any(value > bar for what, (value, bar) in bars.items() if PLAIN not in what))


if __name__ == "__main__":
    sys.exit(main())
