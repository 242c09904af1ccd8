"""Runs the real FlagScale on the CPU, small, and reads back what it printed and what the monitor wrote."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.processes import warm

AGENT = Path(__file__).with_name("agent.py")
DEADLINE_S = 600  # far beyond any healthy run on a busy machine: it only ends a hung one
ITERATION = re.compile(
    r"iteration +(\d+)/ *\d+ \| consumed samples: +(\d+) .*?elapsed time per iteration \(ms\): (-?[\d.]+)"
)
GLOBAL_BATCH = re.compile(r"global batch size: +(\d+)")
# Ranks share one pipe: a line is taken from its first to its last figure, whatever another rank printed
# behind it.
LINE = re.compile(
    r"iteration +\d+/.*?elapsed time per iteration \(ms\): (-?[\d.]+) \|.*?number of nan iterations: +\d+ \|"
)

SEQ_LENGTH = 64
TINY = shlex.split(
    f"--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length {SEQ_LENGTH} "
    f"--max-position-embeddings {SEQ_LENGTH} --micro-batch-size 2 "
    "--global-batch-size 4 --mock-data --tokenizer-type NullTokenizer --vocab-size 8000 --lr 1e-4 "
    "--transformer-impl local "
    "--no-persist-layer-norm --no-gradient-accumulation-fusion --no-masked-softmax-fusion "
    "--no-bias-gelu-fusion "
    "--no-bias-dropout-fusion --eval-iters 0 --log-interval 1"
)
# Without processes that load data: several a rank, which hold a killed one's pipes for 5 s.
SMALL = [*TINY, "--num-workers", "0"]
LLAMA = shlex.split(
    "--swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope "
    "--no-rope-fusion --no-bias-swiglu-fusion "
    "--untie-embeddings-and-output-weights --group-query-attention --num-query-groups 2"
)
# Among what is not available wherever a rehearsal is the device.
NO_COUNTERS = "hardware counters (CPU (rehearsal) has no id to find them by)"


def root() -> Path:
    """The installed FlagScale."""
    spec = importlib.util.find_spec("flag_scale")
    assert spec is not None and spec.submodule_search_locations is not None, (
        "FlagScale is not installed; run: make venv"
    )
    return Path(next(iter(spec.submodule_search_locations)))


def train_gpt() -> Path:
    """Its unmodified training script."""
    return root() / "flagscale" / "train" / "train_gpt.py"


def make_later_tree(tree: Path) -> Path:
    """A tree shaped like FlagScale 1.x, of the installed one's files; returns its root."""
    megatron, scripts = root() / "third_party" / "Megatron-LM", tree / "flagscale" / "train" / "megatron"
    scripts.mkdir(parents=True)
    for name in ("megatron", "gpt_builders.py", "model_provider.py"):
        (tree / name).symlink_to(megatron / name)
    for package in ("", "train"):
        for path in (root() / "flagscale" / package).iterdir():
            if path.name not in ("train", "train.py", "train_gpt.py", "__pycache__"):
                (tree / "flagscale" / package / path.name).symlink_to(path)
    text = (megatron / "pretrain_gpt.py").read_text()
    head, imported, tail = text.partition("get_tokenizer, pretrain, print_rank_0\n")
    assert imported
    own_loop = "get_tokenizer, print_rank_0\nfrom megatron.training.training import pretrain\n"
    (scripts / "train_gpt.py").write_text(head + own_loop + tail)
    return tree


def environment(**more: str) -> dict[str, str]:
    """What FlagScale's own runner would export."""
    megatron = root() / "third_party" / "Megatron-LM"
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLAGSCALE_PERF_", "TORCHELASTIC_"))
    }
    path = os.pathsep.join(map(str, (root(), megatron, Path(__file__).parents[2])))
    binaries = os.pathsep.join((str(Path(sys.executable).parent), kept.get("PATH", "")))
    return (
        kept
        | {"PYTHONPATH": path, "CUDA_DEVICE_MAX_CONNECTIONS": "1", "OMP_NUM_THREADS": "1", "PATH": binaries}
        | more
    )


def free_port() -> int:
    """A port nobody listens on, below the range that the kernel gives to outgoing connections: nobody gets it
    by chance.
    """
    while True:
        port = random.randint(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port


def only_rank() -> dict[str, str]:
    """Variables of the process of a training that has one, where no launcher sets them."""
    at = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", **at}


def torchrun(ranks: int, *words: str | Path) -> list[str]:
    """The command of one node; `words` follow torchrun's own options."""
    port = f"--master_port={free_port()}"
    return [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc_per_node={ranks}",
        port,
        *map(str, words),
    ]


def workers(ranks: int, *words: str | Path) -> list[str]:
    """The same training without torchrun, see tests/processes/agent.py."""
    return [sys.executable, str(AGENT), str(ranks), str(free_port()), *map(str, words)]


def warm_python(*words: str | Path) -> list[str]:
    """`python WORDS...` by the same means, which belongs to no job."""
    return [sys.executable, str(AGENT), "as-it-is", *map(str, words)]


def launched(*words: str | Path) -> list[str]:
    """`-m flagscale_perf.launch` with a script and its arguments."""
    return ["-m", "flagscale_perf.launch", *map(str, words)]


@dataclass(frozen=True)
class Logged:
    """One iteration as the host printed it."""

    iteration: int
    consumed: int
    elapsed_ms: float


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    returncode: int
    output: str

    @property
    def logged(self) -> list[Logged]:
        return [Logged(int(i), int(c), float(e)) for i, c, e in ITERATION.findall(self.output)]

    @property
    def lines(self) -> list[str]:
        """The host's iteration lines (losses, norms, counts) without the elapsed time."""
        return [
            found.group(0).replace(f" {found.group(1)} |", " |", 1) for found in LINE.finditer(self.output)
        ]


def run(command: list[str], cwd: Path, **env: str) -> Finished:
    """Runs to the end, also of the writer, which on a busy machine outlives the training."""
    mark = f"{random.getrandbits(64):016x}"
    finished = finish(start(command, cwd, RUN_OF_A_TEST=mark, **env))
    wait_until(lambda: not any(map(partial(_has_variable, mark), Path("/proc").glob("[0-9]*"))), "its writer")
    return finished


def _has_variable(value: str, process: Path) -> bool:
    try:
        return value.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def start(command: list[str], cwd: Path, **env: str) -> subprocess.Popen[str]:
    """Starts in a session of its own, stdout and stderr in one pipe."""
    if str(AGENT) in command and warm.SOCKET not in env:
        env[warm.SOCKET] = warm.address()
    return subprocess.Popen(
        command,
        cwd=cwd,
        env=environment(**env),
        text=True,
        errors="replace",
        start_new_session=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def finish(process: subprocess.Popen[str], read_so_far: str = "") -> Finished:
    """Waits for the end; kills what hangs, and says so by the exit code."""
    try:
        output, _ = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    return Finished(process.returncode, read_so_far + output)


def read_until(process: subprocess.Popen[str], iteration: int) -> str:
    """Reads the output until the host has printed that iteration."""
    assert process.stdout is not None
    read = ""
    for line in process.stdout:
        read += line
        found = ITERATION.search(line)
        if found and int(found.group(1)) >= iteration:
            return read
    raise AssertionError(f"the run ended before iteration {iteration}:\n{read[-4000:]}")


def host_losses(directory: Path) -> list[tuple[int, float]]:
    """(step, loss) as float32 bits from the host's own TensorBoard curve."""
    events = EventAccumulator(str(directory))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars("lm loss")]


def records(directory: Path, kind: str = "step") -> list[dict]:
    """Records of one kind from the directory's only run file of a training; [] before it is there."""
    path = _run_file(directory)
    return [] if path is None else [row for row in _rows(path) if row["kind"] == kind]


def summary(directory: Path) -> dict:
    """The summary of the same run."""
    path = _run_file(directory)
    assert path is not None, directory
    return json.loads(
        path.with_name(path.name.replace("records", "summary")).with_suffix(".json").read_text()
    )


def _run_file(directory: Path) -> Path | None:
    paths = list(directory.glob("perf_records_*.jsonl"))
    trainings = [path for path in paths for row in _rows(path)[:1] if row["instrument"] == "training"]
    assert len(trainings) <= 1, trainings
    return trainings[0] if trainings else None


def _rows(path: Path) -> list[dict]:
    """Without a line that is being written."""
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Polls until true; fails with `what` after the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.05)
