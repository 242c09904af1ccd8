"""Peak memory and FLOPs of ten configurations, predicted with fake tensors, beside what a real step needs.

Measured by torch's profiler (each allocation of the step, beside what is held before it), and by MemTracker
and FlopCounterMode around the real step. Nothing is timed, so it may run on a busy machine.
Exit code 1 where a peak misses by more than 5 %, or FLOPs differ at all.

    python benchmarks/predicted_memory.py
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils import flop_counter

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.prediction import Setup
from flagscale_perf.profile.standalone.fake_step import Ready, made_ready, optimizer_bytes, predict

BAR = 0.05
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 4096,
    "n_embd": 256,
    "n_layer": 4,
    "n_head": 4,
    "n_positions": 1024,
}
LLAMA = {
    "model_type": "llama",
    "vocab_size": 8192,
    "hidden_size": 384,
    "intermediate_size": 1024,
    "num_hidden_layers": 6,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
QWEN2 = LLAMA | {"model_type": "qwen2", "tie_word_embeddings": False, "num_hidden_layers": 2}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 2,
    "tie_word_embeddings": False,
}
CASES: tuple[tuple[str, dict[str, Any] | None, dict[str, Any]], ...] = (
    ("qwen3", None, {}),
    ("qwen3 bf16", None, {"dtype": "bfloat16"}),
    ("qwen3 long", None, {"batch": 1, "tokens": 1024}),
    ("qwen3 wide batch", None, {"batch": 16}),
    ("qwen3 no optimizer", None, {"optimizer": "none"}),
    (
        "qwen3 inference",
        None,
        {"tokens": 512, "dtype": "bfloat16", "optimizer": "none", "is_inference": True},
    ),
    ("llama, tied", LLAMA, {}),
    ("qwen2", QWEN2, {}),
    ("gpt2", GPT2, {}),
    ("mixtral bf16", MIXTRAL, {"dtype": "bfloat16"}),
)


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_counter.sdpa_flop_count(query, key, value))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(flop_counter.sdpa_backward_flop_count(grad, query, key, value))


# torch's own formulas, which its table does not have for the CPU's attention
ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
}


def measured_bytes(ready: Ready) -> int:
    """What is held before the step, and on top of it the most that the step's allocations come to."""
    model, optimizer = ready.model, ready.optimizer
    held = {id(each): each for each in (*model.parameters(), *model.buffers(), ready.ids)}
    before = sum(each.numel() * each.element_size() for each in held.values()) + optimizer_bytes(optimizer)
    session = Session(memory=True)
    session.start()
    ready.run(nullcontext)
    session.stop()
    changes = session.events(1 << 40).allocations
    assert changes is not None
    return before + int(np.cumsum(changes.size_bytes).max())


def tracked_bytes(ready: Ready) -> int:
    """By torch's own tracker."""
    tracker = MemTracker()
    tracker.track_external(ready.model, ready.ids, *([ready.optimizer] if ready.optimizer else []))
    with tracker:
        ready.run(nullcontext)
    return sum(int(each["Total"]) for each in tracker.get_tracker_snapshot("peak").values())


def counted_flops(ready: Ready) -> int:
    """By torch's own counter."""
    mode = flop_counter.FlopCounterMode(display=False, custom_mapping=ATTENTION)
    with mode:
        ready.run(nullcontext)
    return int(mode.get_total_flops())


def main() -> int:
    """Prints the table."""
    worst, misses = 0.0, []
    print(head("profile"))
    print("configuration         predicted   measured  MemTracker   off by   FLOPs predicted     counted")
    with TemporaryDirectory() as directory:
        for name, content, given in CASES:
            config = None
            if content is not None:
                config = Path(directory) / name.split(",")[0]
                config.mkdir()
                (config / "config.json").write_text(json.dumps(content))
            setup = Setup(name, **{"batch": 2, "tokens": 256, "dtype": "float32", **given})
            torch.manual_seed(1)
            found = predict(setup, config)
            ready = made_ready(setup, config)
            for _ in range(2):
                ready.run(nullcontext)
            measured, tracked, flops = measured_bytes(ready), tracked_bytes(ready), counted_flops(ready)
            off = found.peak_bytes / measured - 1
            worst = max(worst, abs(off))
            if abs(off) > BAR or flops != found.flops:
                misses.append(name)
            print(
                f"{name:20} {found.peak_bytes / 1e6:7.2f} MB {measured / 1e6:7.2f} MB {tracked / 1e6:8.2f} MB"
                f" {off:+8.2%} {found.flops / 1e9:12.6f} G {flops / 1e9:12.6f} G"
            )
    missed = ", ".join(misses) or "none"
    print(f"worst {worst:.2%} of {len(CASES)} configurations, bar {BAR:.0%}; missed: {missed}")
    return 1 if misses else 0


if __name__ == "__main__":
    sys.exit(main())
