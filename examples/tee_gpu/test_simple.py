"""Calls each method of a running GPU server once, with small arguments, and shows both sides' stack traces of
those that fail. `python test_simple.py`, beside `python server_optimized.py`.
"""

from __future__ import annotations

import json
import sys
import traceback
from time import perf_counter_ns
from typing import NamedTuple

import needed  # noqa: F401
import torch
from split_inference.client import GPUClient, GPUClientOptions
from split_inference.gpu import Argument, Ask
from split_inference.options import parser, run_program
from split_inference.traffic import ModelSizes
from tensor_rpc.errors import PeerGone

from flagscale_perf.spine.errors import PerfError

TOKENS = 4
Shape = tuple[int, ...]


class Case(NamedTuple):
    """A call, and the shapes of what it must return; None where that is the model's affair."""

    ask: Ask
    expected: list[Shape] | None


def cases(sizes: ModelSizes, dtype: torch.dtype) -> list[Case]:
    """Every method, each linear's weights once."""
    hidden, query = (1, TOKENS, sizes.hidden), (1, sizes.heads, TOKENS, sizes.head_dim)
    grouped, scores = (1, sizes.kv_heads, TOKENS, sizes.head_dim), (1, sizes.heads, TOKENS, TOKENS)
    flat, inner = (1, TOKENS, sizes.heads * sizes.head_dim), (1, TOKENS, sizes.ffn)
    kv_flat = (1, TOKENS, sizes.kv_heads * sizes.head_dim)
    layer: dict[str, Argument] = {"layer": 0}

    def case(method: str, given: list[Shape], arguments: dict[str, Argument], *expected: Shape) -> Case:
        return Case(Ask(method, [torch.ones(shape, dtype=dtype) for shape in given], arguments), [*expected])

    return [
        Case(Ask("Init", [], {}), None),
        Case(Ask("Embedding", [torch.zeros(1, TOKENS, dtype=torch.int64)], {}), [hidden]),
        case("BatchLinear", [hidden], layer | {"weights": "qkv"}, flat, kv_flat, kv_flat),
        case("BatchLinear", [flat], layer | {"weights": "o"}, hidden),
        case("BatchLinear", [hidden], layer | {"weights": "gate_up"}, inner, inner),
        case("BatchLinear", [inner], layer | {"weights": "down"}, hidden),
        case("Matmul", [query, query], {"transposed": True}, scores),
        case("Matmul", [scores, query], {}, query),
        case("MatmulLinear", [scores, query], layer, hidden),
        case("Attention", [query, grouped, grouped], layer, flat),
        case("AttentionLinear", [query, grouped, grouped], layer, hidden),
        case("MLP", [hidden], layer, hidden),
        case("fused_layer", [hidden], layer | {"cached": 0, "sequence": 0}, hidden),
        case("LMHead", [(1, 1, sizes.hidden)], {}, (1, 1, sizes.vocab)),
    ]


def run(client: GPUClient, case: Case) -> str:
    """What the call returned, in words. Raises where it failed, or returned what it should not."""
    shapes = [tuple(tensor.shape) for tensor in client.submit(case.ask).result()]
    if case.expected is not None and shapes != case.expected:
        raise PerfError(f"{case.ask.method} returned {shapes}; it must return {case.expected}")
    return ", ".join(str(shape) for shape in shapes[:3]) + (" ..." if len(shapes) > 3 else "")


def main() -> int:
    """1 where a method failed, 2 without a server."""
    made = parser(__doc__ or "")
    made.add_argument(
        "--wait", type=float, default=10.0, metavar="SECONDS", help="for a server that is starting"
    )
    args = made.parse_args()
    failed = 0
    try:
        with GPUClient(args.ipc_path, None, GPUClientOptions(wait_s=args.wait, record=False)) as client:
            facts = json.loads(client.description)
            sizes = ModelSizes(**{name: facts[name] for name in ModelSizes.__dataclass_fields__})
            dtype = getattr(torch, client.hello.server.dtype.removeprefix("torch."))
            chosen = cases(sizes, dtype)
            for number, case in enumerate(chosen, 1):
                failed += not passes(client, case, f"[{number:2}/{len(chosen)}]")
    except PerfError as error:
        print(f"test_simple.py: {error}", file=sys.stderr)
        return 2
    print(f"{len(chosen) - failed} of {len(chosen)} calls passed")
    return 1 if failed else 0


def passes(client: GPUClient, case: Case, number: str) -> bool:
    """Runs it and prints how it went. Raises `PeerGone`: the other calls cannot be made then."""
    what = " ".join(
        [case.ask.method, *(str(value) for key, value in case.ask.arguments.items() if key == "weights")]
    )
    begun = perf_counter_ns()
    try:
        returned = run(client, case)
    except PeerGone:
        raise
    except PerfError:
        print(f"{number} {what:<20} FAILED\n{traceback.format_exc()}")
        return False
    print(f"{number} {what:<20} ok {(perf_counter_ns() - begun) / 1e6:9.3f} ms  {returned}")
    return True


if __name__ == "__main__":
    run_program(main)
