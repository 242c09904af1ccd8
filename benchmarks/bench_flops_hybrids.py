"""What Megatron-LM's and Megatron-Bridge's own formulas say of hybrid models, beside ours.

python benchmarks/bench_flops_hybrids.py

Each formula is called in its own package at run time. The tiny models are counted, forward and backward, in
transformers' code (tests/oracle); of the large ones ours is the base, by the formulas that equal those
counts. The sizes are those of the models' published configs. Not a test: it asserts nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.bench_flops_peers import ask, model_flops
from benchmarks.provenance import head
from flagscale_perf.flops_calculator import ModelShape, count
from tests.oracle.comparison import counted
from tests.oracle.hybrid_configurations import NEMOTRON, step

BRIDGE = Path(sys.prefix) / "share" / "megatron-bridge"
PEERS = {"FlagScale": None, "Megatron": None, "Bridge": BRIDGE}
BASE: dict[str, Any] = {
    "is_hybrid_model": True,
    "squared_relu": True,
    "normalization": "RMSNorm",
    "add_bias_linear": False,
    "position_embedding_type": "none",
    "group_query_attention": True,
    "hybrid_attention_ratio": 0.0,
    "hybrid_mlp_ratio": 0.0,
    "untie_embeddings_and_output_weights": True,
}
TINY = BASE | {
    "hybrid_override_pattern": "M-*M-",
    "num_layers": 5,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "kv_channels": 12,
    "ffn_hidden_size": 48,
    "padded_vocab_size": 96,
    "mamba_num_heads": 8,
    "mamba_head_dim": 8,
    "mamba_state_dim": 12,
    "mamba_num_groups": 2,
    "batch": 2,
    "seq_length": 21,
}
# Name -> Megatron's arguments, and what transformers' config differs in from tests/oracle's.
COUNTED = {
    "tiny": (TINY, {}),
    "tiny, narrow mixers": (
        TINY | {"mamba_num_heads": 6, "mamba_num_groups": 3},
        {"mamba_num_heads": 6, "n_groups": 3},
    ),
}
LARGE = {
    "Nemotron-H 8B, 8k": BASE
    | {
        "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
        "num_layers": 52,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_query_groups": 8,
        "kv_channels": 128,
        "ffn_hidden_size": 21504,
        "padded_vocab_size": 131072,
        "mamba_num_heads": 128,
        "mamba_head_dim": 64,
        "mamba_state_dim": 128,
        "mamba_num_groups": 8,
        "batch": 1,
        "seq_length": 8192,
    },
    "Nemotron Nano 9B v2, 8k": BASE
    | {
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-",
        "num_layers": 56,
        "hidden_size": 4480,
        "num_attention_heads": 40,
        "num_query_groups": 8,
        "kv_channels": 128,
        "ffn_hidden_size": 15680,
        "padded_vocab_size": 131072,
        "mamba_num_heads": 128,
        "mamba_head_dim": 80,
        "mamba_state_dim": 128,
        "mamba_num_groups": 8,
        "batch": 1,
        "seq_length": 8192,
    },
}


def main() -> None:
    """Counts, asks, prints one row a model."""
    models = {name: args for name, (args, _) in COUNTED.items()} | LARGE
    truths = counted_truths()
    tables = {
        name: count(ModelShape.from_args(args), args["batch"], args["seq_length"])
        for name, args in models.items()
    }
    recurrent = {name: table.totals["model_flops_causal_half"] for name, table in tables.items()}
    answers = {peer: ask(peer, list(models.values()), where) for peer, where in PEERS.items()}
    print(head("flops", "flops_calculator.py"))
    print("Model FLOPs, attention causal half: % off the count (tiny models) or off ours\n")
    print(
        f"{'':28}{'counted':>9}{'ours':>9}{'chunked':>9}{'megatron':>9}"
        + "".join(f"{peer:>11}" for peer in PEERS)
    )
    for row, name in enumerate(models):
        base = truths.get(name, recurrent[name])
        forms = [
            tables[name].totals_by_core[form]["model_flops_causal_half"] for form in ("chunked", "megatron")
        ]
        cells = [error(flops, base) for flops in (recurrent[name], *forms)]
        peers = [error(answers[peer][row].get("flops"), base) for peer in PEERS]
        mark = "yes" if name in truths else "-"
        print(
            f"{name:28}{mark:>9}"
            + "".join(f"{cell:>9}" for cell in cells)
            + "".join(f"{cell:>11}" for cell in peers)
        )
    for peer, given in answers.items():
        for name, answer in zip(models, given, strict=True):
            if "flops" not in answer:
                print(f"{peer}, {name}: {answer}")


def counted_truths() -> dict[str, int]:
    """Model FLOPs of the tiny models, from the counts of transformers' own."""
    runs = {name: step(NEMOTRON | changed) for name, (_, changed) in COUNTED.items()}
    return {
        name: model_flops(found["components"])["causal_half"] for name, found in counted(runs, []).items()
    }


def error(flops: float | None, base: int | None) -> str:
    """In percent; `-` where there is no answer."""
    if not flops or not base:
        return "-"
    return "0" if flops == base else f"{100 * (flops / base - 1):+.2f}"


if __name__ == "__main__":
    main()
