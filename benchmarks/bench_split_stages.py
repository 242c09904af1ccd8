"""The requirement's way from 44 s to 1 to 2 s, stage by stage on the example's model: calls, bytes, seconds.

python benchmarks/bench_split_stages.py > benchmarks/results/split_stages_2_cores_x86_64.txt

Both processes compute on CPUs here: what the requirement expects of a GPU and of a TEE is not measured.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from argparse import ArgumentParser
from pathlib import Path
from statistics import median
from subprocess import PIPE, Popen, run
from tempfile import TemporaryDirectory
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import REPO, head

EXAMPLE = REPO / "examples/tee_gpu"
CONFIG, TOKENS = "tiny", 128
WAIT_S = 300


class Stage(NamedTuple):
    """What is changed at once.

    Attributes:
        name: of the requirement's stage.
        dtype, payload, cut, pipeline: options of both programs; see examples/tee_gpu/README.md.
        transport: "tcp" or "ipc".
        batch: sequences; a pipeline needs as many.
    """

    name: str
    transport: str
    dtype: str
    payload: str
    cut: str
    pipeline: int = 1
    batch: int = 1


STAGES = (
    Stage("0 msgpack, TCP, float32", "tcp", "float32", "msgpack", "calls6"),
    Stage("1 IPC, bfloat16", "ipc", "bfloat16", "msgpack", "calls6"),
    Stage("2 shared memory, 4 calls", "ipc", "bfloat16", "shared", "calls4"),
    Stage("3 fused attention", "ipc", "bfloat16", "shared", "fused_blocks"),
    Stage("3 batch of 2", "ipc", "bfloat16", "shared", "fused_blocks", 1, 2),
    Stage("3 batch of 2, pipeline", "ipc", "bfloat16", "shared", "fused_blocks", 2, 2),
)
HEAD = ("calls", "MiB sent", "MiB back", "in calls, s", "server, s", "carrying, s")


class Measured(NamedTuple):
    """Of one run of the model: its calls, and the bytes and times of all of them."""

    calls: int
    sent_bytes: int
    received_bytes: int
    total_s: float
    server_s: float


def measure(stage: Stage, place: Path) -> Measured:
    """Runs both programs once. Raises RuntimeError where one fails."""
    port = 5600 + os.getpid() % 300
    endpoint = f"ipc://{place}/socket" if stage.transport == "ipc" else f"tcp://127.0.0.1:{port}"
    environ = os.environ | {"LLAMA_IPC_PATH": endpoint, "PYTHONPATH": str(REPO), "OMP_NUM_THREADS": "1"}
    size = ["--max-batch", "2", "--max-tokens", str(TOKENS), "--dtype", stage.dtype, "--config", CONFIG]
    server = [sys.executable, str(EXAMPLE / "server_optimized.py"), *size]
    client = [sys.executable, str(EXAMPLE / "tee_runner_optimized.py"), "--tokens", str(TOKENS)]
    client += ["--payload", stage.payload, "--stage", stage.cut]
    client += ["--batch", str(stage.batch), "--pipeline", str(stage.pipeline)]
    with Popen(server, cwd=place, env=environ, stdout=PIPE, text=True) as serving:
        try:
            assert serving.stdout is not None
            next((line for line in serving.stdout if "listening" in line), "")  # or it has ended
            done = run(client, cwd=place, env=environ, capture_output=True, text=True, timeout=WAIT_S)
        finally:
            serving.send_signal(signal.SIGTERM)
    if done.returncode:
        raise RuntimeError(f"{stage.name}: {done.stderr or done.stdout}")
    (summary,) = (place / "logs/rpc").glob("perf_summary_*.json")
    whole = json.loads(summary.read_text())["overall"]
    total_s, server_s = whole["total_ns"] / 1e9, whole["server_ns"] / 1e9
    return Measured(whole["calls"], whole["sent_bytes"], whole["received_bytes"], total_s, server_s)


def main() -> None:
    """Prints a line a stage; rounds take the stages in turn."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: dict[str, list[Measured]] = {stage.name: [] for stage in STAGES}
    for _ in range(rounds):
        for stage in STAGES:
            with TemporaryDirectory() as place:
                found[stage.name].append(measure(stage, Path(place)))
    print(head("rpc", "examples/tee_gpu/tensor_rpc", "examples/tee_gpu/split_inference"))
    print(f"{CONFIG}, {TOKENS} tokens, one thread a side, median of {rounds} rounds")
    print(f"{'stage':26}" + "".join(f"{title:>13}" for title in HEAD))
    for name, runs in found.items():
        one, total = runs[0], median(each.total_s for each in runs)
        carrying = median(each.total_s - each.server_s for each in runs)
        sent, received = one.sent_bytes / 2**20, one.received_bytes / 2**20
        figures = f"{sent:13.1f}{received:13.1f}{total:13.3f}{total - carrying:13.3f}{carrying:13.3f}"
        print(f"{name:26}{one.calls:13}{figures}")
    print("not measured: GPU, TEE (both sides compute on CPUs here)")


if __name__ == "__main__":
    main()
