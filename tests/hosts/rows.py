"""The table of runs that a host goes through. A row fails by an assertion; each is a few seconds."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.hosts.trees import REPO, Host
from tests.processes import flagscale as fs
from tests.processes import test_bridge as bridge
from tests.processes.runners import flagscale_perf, python_of_its_own, start_and_wait, write_configuration

ITERATIONS = 6
# What a tree asks for beyond 0.8.0: it divides by the interval, also where it never evaluates.
COMMON = (*fs.TINY, "--eval-interval", 1000, "--train-iters", ITERATIONS)
EXPERTS = (
    *("--disable-bias-linear", "--num-experts", 4, "--moe-router-topk", 2),
    *("--expert-model-parallel-size", 2),
)
NO_RUNNER = "it has no runner of its own"
DOCUMENTS = Path(__file__).with_name("documents.py")
LOOP = REPO / "examples" / "megatron_core_loop" / "train.py"
ON = ("--enable-perf-monitor", "--perf-log-interval", 2, "--perf-log-dir", "perf")
Row = Callable[[Host, Path], None]
ROWS: dict[str, Row] = {}


def row(name: str) -> Callable[[Row], Row]:
    def put(function: Row) -> Row:
        ROWS[name] = function
        return function

    return put


def train(
    host: Host, directory: Path, *words: object, ranks: int = 1, mock: bool = True, **env: str
) -> fs.Finished:
    """The host's own script under `flagscale_perf.launch`, in a new directory. `mock`: with mock data."""
    common = COMMON if mock else [word for word in COMMON if word != "--mock-data"]
    words = fs.launched(script_of(host), *map(str, (*common, *words)))
    directory.mkdir(parents=True)
    done = fs.run(fs.workers(ranks, *words), directory, PYTHONPATH=host.pythonpath, **env)
    assert done.returncode == 0, done.output[-3000:]
    return done


def script_of(host: Host) -> Path:
    return host.script or pytest.skip("it has no training script")


def recorded(directory: Path) -> list[dict]:
    """The steps, all of which must be there."""
    steps = fs.records(directory)
    assert [step["iteration"] for step in steps] == list(range(1, ITERATIONS + 1))
    return steps


def off_and_on(shape: Sequence[object], ranks: int) -> Row:
    """Equal losses without and with the monitor; every step recorded, with its FLOPs and phases."""

    def run(host: Host, directory: Path) -> None:
        off = train(host, directory / "off", *shape, ranks=ranks)
        monitor = (*ON, "--perf-breakdown", "--perf-max-overhead", 100)
        on = train(host, directory / "on", *shape, *monitor, ranks=ranks)
        assert len(on.lines) == ITERATIONS and on.lines == off.lines
        steps = recorded(directory / "on" / "perf")
        assert all(step["model_flops"] > 0 for step in steps)
        for phases, step in zip(fs.records(directory / "on" / "perf", "phases"), steps, strict=True):
            parts = [value for name, value in phases.items() if name.endswith("_ns") and value is not None]
            assert sum(parts) == step["iteration_ns"]

    return run


ROWS["1 rank"] = off_and_on(fs.LLAMA, 1)
ROWS["TP2"] = off_and_on(("--tensor-model-parallel-size", 2), 2)
ROWS["PP2"] = off_and_on(("--pipeline-model-parallel-size", 2), 2)
ROWS["MoE EP2"] = off_and_on(EXPERTS, 2)


@row("profile")
def profiled_steps(host: Host, directory: Path) -> None:
    train(host, directory / "on", *ON, "--perf-profile-steps", "4-5")
    files = [*(directory / "on" / "perf").glob("perf_records_*.jsonl")]
    texts = {json.loads(text.partition("\n")[0])["instrument"]: text for text in map(Path.read_text, files)}
    # By what is in them: sessions that begin in the same second are named in the order of their writers.
    assert (len(files), sorted(texts)) == (2, ["profile", "training"]), files
    assert '"kind":"profile_row"' in texts["profile"]


@row("checkpoint")
def checkpoint_and_resume(host: Host, directory: Path) -> None:
    kept = (
        "--save",
        directory / "ckpt",
        "--load",
        directory / "ckpt",
        "--save-interval",
        3,
        "--ckpt-format",
        "torch",
    )
    train(host, directory / "first", *kept, *ON, "--exit-interval", 3)
    train(host, directory / "second", *kept, *ON)
    steps = fs.records(directory / "second" / "perf")
    assert [step["iteration"] for step in steps] == [4, 5, 6]
    assert fs.records(directory / "first" / "perf")[-1]["checkpoint_ns"] > 0


@row("extra evaluation")
def extra_evaluation(host: Host, directory: Path) -> None:
    """FlagScale's `--extra-eval-interval` is evaluation, and no part of an iteration."""
    if not host.has_monitor:  # of FlagScale 0.8.0 every evaluation ends in an error of its own
        pytest.skip("it has no extra evaluation, or none that runs")
    directory.mkdir(parents=True)
    prefix = directory / "documents"
    done = fs.run([sys.executable, *fs.launched(DOCUMENTS, prefix)], directory, PYTHONPATH=host.pythonpath)
    assert done.returncode == 0, done.output[-3000:]
    real = ("--data-path", prefix, "--split", "98,1,1", "--data-cache-path", directory / "cache")
    extra = (*real, "--extra-eval-interval", 2, "--extra-valid-data-path", 256, prefix)
    off = train(host, directory / "off", *extra, mock=False)
    on = train(host, directory / "on", *extra, *ON, mock=False)
    assert len(on.lines) == ITERATIONS and on.lines == off.lines
    assert on.output.count("extra validation loss at iteration") == 4  # once more after the training
    assert [step["eval_ns"] > 0 for step in recorded(directory / "on" / "perf")] == [False, True] * 3


@row("spellings")
def every_spelling_of_a_flag(host: Host, directory: Path) -> None:
    words = ("--enable-perf-monitor=true", "--perf-memory-tracking", "false", "--perf-log-interval", 1)
    train(host, directory / "on", *words)
    logs = directory / "on" / "logs" / "perf_monitor"
    recorded(logs)
    assert is_one_monitor(logs, ITERATIONS)


@row("variable")
def environment_variables_alone(host: Host, directory: Path) -> None:
    variables = {"FLAGSCALE_PERF_ENABLE_MONITOR": "1", "FLAGSCALE_PERF_LOG_INTERVAL": "3"}
    train(host, directory / "on", **variables)
    logs = directory / "on" / "logs" / "perf_monitor"
    recorded(logs)
    assert is_one_monitor(logs, 2)


def is_one_monitor(logs: Path, lines: int) -> bool:
    """Whether the live log has this many rows of figures: no other monitor writes there, too."""
    live = (logs / "perf_realtime.log").read_text().splitlines()
    return sum(line[:2] == "20" for line in live) == lines


@row("both monitors")
def the_host_s_own_monitor_beside_ours(host: Host, directory: Path) -> None:
    """Where the host has one; its straggler detection, too."""
    if not host.has_monitor:
        pytest.skip("it has no monitor of its own")
    straggler = ("--enable-straggler-detection",)
    off = train(host, directory / "off", *straggler)
    on = train(host, directory / "on", *straggler, *ON, "--perf-host-monitor", "keep")
    assert on.lines == off.lines
    recorded(directory / "on" / "perf")
    assert is_one_monitor(directory / "on" / "perf", 3)
    assert (directory / "on" / "perf" / "host_monitor" / "perf_realtime.log").is_file()


@row("run.py")
def our_run_py(host: Host, directory: Path) -> None:
    """The README's command with a tree of FlagScale."""
    if not host.is_flagscale:
        pytest.skip(NO_RUNNER)
    directory.mkdir(parents=True)
    job = [
        f"experiment.task.flagscale_root={host.root}",
        "+train.model.eval_interval=1000",
        f"train.model.train_iters={ITERATIONS}",
        "+experiment.runner.enable_gpu_health_check=true",
        "+experiment.runner.heartbeat={interval: 3}",
        "train.system.enable_perf_monitor=true",
    ]
    companions = os.pathsep.join(map(str, host.path[2:]))
    done = fs.run([sys.executable, str(REPO / "run.py"), *job], directory, PYTHONPATH=companions)
    assert done.returncode == 0, done.output[-3000:]
    recorded(directory / "outputs" / "logs" / "perf_monitor")


@row("torchrun")
def the_readmes_first_command(host: Host, directory: Path) -> None:
    words = fs.launched(script_of(host), *map(str, COMMON), "--enable-perf-monitor")
    directory.mkdir(parents=True)
    done = fs.run(fs.torchrun(2, *words), directory, PYTHONPATH=host.pythonpath)
    assert done.returncode == 0, done.output[-3000:]
    recorded(directory / "logs" / "perf_monitor")


@row("its run.py")
def the_host_s_run_py(host: Host, directory: Path) -> None:
    """After `flagscale-perf enable`, with keys that are new to its yaml."""
    if not host.is_flagscale:
        pytest.skip(NO_RUNNER)
    keys = (
        "+train.system.enable_perf_monitor=true",
        "+train.system.perf_log_interval=2",
        f"+train.system.perf_log_dir={directory / 'perf'}",
    )
    by_its_runner(host, directory, [host.root / "run.py"], ["action=run", *keys])
    recorded(directory / "perf")
    assert is_one_monitor(directory / "perf", 3)


@row("runner keys")
def keys_of_its_runner(host: Host, directory: Path) -> None:
    """`experiment.runner.*`, which become options of the script, and the directory that follows from them."""
    if not host.has_monitor:
        pytest.skip("it has no such keys")
    keys = ("+experiment.runner.enable_perf_monitor=true", "+experiment.runner.perf_log_interval=3")
    by_its_runner(host, directory, [host.root / "run.py"], ["action=run", *keys])
    logs = directory / "job" / "logs" / "perf_monitor"
    recorded(logs)
    assert is_one_monitor(logs, 2)


@row("flagscale run")
def the_host_s_command_line(host: Host, directory: Path) -> None:
    command_line = host.root / "flagscale" / "cli.py"
    if not command_line.is_file() or 'command("run")' not in command_line.read_text():
        pytest.skip("it has no such command")
    key = "+train.system.enable_perf_monitor=true"
    by_its_runner(host, directory, ["-m", "flagscale.cli", "run"], ["--action", "run", key])
    recorded(directory / "job" / "logs" / "perf_monitor")


def by_its_runner(host: Host, directory: Path, command: Sequence[object], words: Sequence[str]) -> None:
    """A job of the host's own runner, with `flagscale-perf enable` in an environment of its own."""
    python = python_of_its_own(directory / "env")
    flagscale_perf(python, "enable")
    entrypoint = str(script_of(host).relative_to(host.root))
    write_configuration(directory / "conf", directory / "job", entrypoint, ITERATIONS)
    given = [*command, "--config-path", directory / "conf", "--config-name", "train", *words]
    path = os.pathsep.join(map(str, (host.root, *host.path[2:])))
    output = start_and_wait(python, given, directory, directory / "job", path)
    assert f"iteration {ITERATIONS:8}/{ITERATIONS:8}" in output, output[-3000:]


@row("bridge")
def megatron_bridge(host: Host, directory: Path) -> None:
    """Bridge's own `pretrain`: equal losses, its evaluation and checkpoints no part of an iteration."""
    if not host.is_bridge:
        pytest.skip("it has no pretrain of Megatron-Bridge")
    if sys.version_info < (3, 12):
        pytest.skip("it asks for Python 3.12 or newer")
    losses = []
    for name, env in {"off": {}, "on": bridge.ON | bridge.PHASES}.items():
        train_with_bridge(host, directory / name, {}, **env)
        losses.append(fs.host_losses(directory / name / "tb"))
    assert len(losses[0]) == ITERATIONS and losses[0] == losses[1]
    steps = recorded(directory / "on" / "perf")
    assert all(step["model_flops"] > 0 for step in steps)
    assert [step["eval_ns"] > 0 for step in steps] == [False, False, True] * 2
    assert all(
        step["checkpoint_ns"] > 0 for step in steps
    )  # it asks in every pass whether an asynchronous one has ended
    facts = fs.records(directory / "on" / "perf", "header")[0]["facts"]
    assert facts["missing"] == [fs.NO_COUNTERS]
    saved_asynchronously(host, directory / "async")
    dense = {step["model_flops"] for step in steps}
    tuned_with_packed_sequences(host, directory / "tuned", *dense)


def train_with_bridge(host: Host, directory: Path, options: Mapping[str, object], **env: str) -> fs.Finished:
    """Bridge's own `pretrain` in a new directory, with two checkpoints."""
    directory.mkdir(parents=True, exist_ok=True)
    saved = {"train_iters": ITERATIONS, "save": str(directory / "checkpoints"), "save_interval": 3}
    path = os.pathsep.join((host.pythonpath, str(bridge.SCRIPT.parent)))
    words = fs.launched(bridge.SCRIPT, json.dumps(saved | options))
    done = fs.run(fs.workers(1, *words), directory, PYTHONPATH=path, **env)
    assert done.returncode == 0, done.output[-3000:]
    return done


def saved_asynchronously(host: Host, directory: Path) -> None:
    """What is slept while an asynchronous checkpoint is finalised is checkpoint time."""
    done = train_with_bridge(host, directory, {"finalise_s": 2.0, "eval_interval": 100}, **bridge.ON)
    assert done.output.count("asynchronous checkpoint\n") == 2
    steps = recorded(directory / "perf")
    assert sum(step["checkpoint_ns"] for step in steps) >= 2 * 2e9
    assert max(step["iteration_ns"] for step in steps) < 2e9


def tuned_with_packed_sequences(host: Host, directory: Path, dense: int) -> None:
    """FLOPs follow the lengths that attention is given; `dense`: of a step of four sequences of 64."""
    options = {"tune": str(directory / "data")}
    (directory / "data").mkdir(parents=True)
    done = train_with_bridge(host, directory, options, FLAGSCALE_PERF_PEAK_TFLOPS="0.5", **bridge.ON)
    found = [int(squares) for squares in re.findall(r"squared lengths (\d+) of \d\d?", done.output)]
    squares = [sum(found[first : first + 4]) for first in range(0, len(found), 4)]
    steps = recorded(directory / "perf")
    layers, hidden = 2, 64
    for step, square in zip(steps, squares, strict=True):
        assert dense - step["model_flops"] == 6 * layers * hidden * (4 * 64**2 - square)
    assert len(set(squares)) > 1
    assert all(interval["mfu"] > 0 for interval in fs.records(directory / "perf", "interval"))


@row("own loop")
def a_loop_of_ones_own(host: Host, directory: Path) -> None:
    """The example of a loop on Megatron-Core alone, with the one of this host: equal losses."""
    losses = []
    for name, words in {"off": (), "on": ON}.items():
        (directory / name).mkdir(parents=True)
        example = fs.launched(LOOP, "--train-iters", str(ITERATIONS), *map(str, words))
        done = fs.run(fs.workers(2, *example), directory / name, PYTHONPATH=host.pythonpath)
        assert done.returncode == 0, done.output[-3000:]
        losses.append(re.findall(r"^iteration \d+ loss .*$", done.output, re.MULTILINE))
    assert len(losses[0]) == ITERATIONS and losses[0] == losses[1]
    recorded(directory / "on" / "perf")
