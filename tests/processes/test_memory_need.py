"""The estimate of a training's memory, held against the peak of real runs of FlagScale on the CPU."""

import shlex
from pathlib import Path

import pytest

from flagscale_perf.flops.memory import Layout, memory_need
from flagscale_perf.flops_calculator import ModelShape, count
from flagscale_perf.launcher.preflight import TOLERANCE
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

NOTES_ITS_PEAK = """
import os, runpy, sys
sys.argv = sys.argv[1:]
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    with open("/proc/self/status") as status, open(f"peak_{os.environ['RANK']}", "w") as peak:
        peak.write(next(line.split()[1] for line in status if line.startswith("VmHWM:")))
"""
ALWAYS = (
    "--mock-data --tokenizer-type NullTokenizer --lr 1e-4 --transformer-impl local --no-persist-layer-norm"
    " --no-gradient-accumulation-fusion --no-masked-softmax-fusion --no-bias-gelu-fusion"
    " --no-bias-dropout-fusion --eval-iters 0 --log-interval 1 --train-iters 2 --vocab-size 8000"
    " --num-workers 0"  # the peak is the second step's, which has the state of the optimizer
)
LLAMA = (
    "--swiglu --disable-bias-linear --normalization RMSNorm --position-embedding-type rope --no-rope-fusion"
    " --no-bias-swiglu-fusion --untie-embeddings-and-output-weights --attention-dropout 0.0"
    " --hidden-dropout 0.0"
)


def size(layers: int, hidden: int, seq: int, batch: int, of_step: int) -> str:
    """Heads of 128, or of 32 in a narrow model."""
    heads = max(hidden // 128, 8)
    return (
        f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} --seq-length {seq}"
        f" --max-position-embeddings {seq} --micro-batch-size {batch} --global-batch-size {of_step}"
    )


# Ruled by the state, the scores of attention; the loss, dropout, experts; and each kind of parallelism.
ROWS = {
    "state": (1, f"{size(4, 1024, 64, 1, 1)} {LLAMA}"),
    "scores": (1, f"{size(4, 256, 1024, 2, 2)} {LLAMA} --bf16"),
}
LONG_ROWS = {
    "sharded": (2, f"{size(4, 1024, 64, 1, 2)} {LLAMA} --bf16 --use-distributed-optimizer"),
    "loss": (1, f"{size(2, 256, 512, 2, 4)} {LLAMA} --vocab-size 100000"),
    "dropout": (1, size(4, 256, 1024, 2, 4)),
    "experts": (
        1,
        f"{size(4, 256, 512, 2, 4)} {LLAMA} --num-experts 4 --moe-router-topk 2 --ffn-hidden-size 1024",
    ),
    "tensor": (2, f"{size(4, 1024, 512, 1, 4)} {LLAMA} --tensor-model-parallel-size 2"),
    "pipeline": (2, f"{size(4, 1024, 512, 1, 4)} {LLAMA} --pipeline-model-parallel-size 2"),
}


@pytest.mark.parametrize(("ranks", "words"), ROWS.values(), ids=ROWS)
def test_the_estimate_is_right_within_the_stated_factor(ranks, words, tmp_path: Path) -> None:
    hold(ranks, words, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "words"), LONG_ROWS.values(), ids=LONG_ROWS)
def test_the_estimate_of_everything_else_is_right_too(ranks, words, tmp_path: Path) -> None:
    hold(ranks, words, tmp_path)


def hold(ranks: int, words: str, tmp_path: Path) -> None:
    """Trains with these words, and compares the estimate with what all ranks had at their peak."""
    typed = shlex.split(f"{ALWAYS} {words}")
    (tmp_path / "peak.py").write_text(NOTES_ITS_PEAK)
    command = fs.workers(ranks, *fs.launched("peak.py", fs.train_gpt(), *typed))
    finished = fs.run(command, tmp_path)
    assert finished.returncode == 0, finished.output[-3000:]
    peaks = [1024 * int((tmp_path / f"peak_{rank}").read_text()) for rank in range(ranks)]
    given = as_args(typed)
    layout = Layout.from_args(given, ranks, ranks)
    shape = ModelShape.from_args(given)
    need = memory_need(shape, count(shape, 1, layout.seq_length).parameters, layout)
    assert sum(peaks) / TOLERANCE < need.total_bytes < sum(peaks) * TOLERANCE, (need, peaks)


def as_args(words: list[str]) -> dict[str, object]:
    """What a parser makes of flags with at most one value."""
    given: dict[str, object] = {}
    for word, following in zip(words, [*words[1:], "--"], strict=True):
        if word.startswith("--"):
            name = word.removeprefix("--").replace("-", "_")
            given[name] = True if following.startswith("--") else following
    return given | ({"add_bias_linear": False} if given.get("disable_bias_linear") else {})
