"""The protected side: runs a split model by calls to a GPU server, and says where the time went."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import needed  # noqa: F401
import torch
from split_inference.client import DEFAULT_IPC_PATH, GPUClient
from split_inference.declarations import declaration
from split_inference.forward import ProtectedModel
from split_inference.options import (
    DEFAULT_CONFIG,
    add_client,
    add_model,
    add_stage,
    client_options,
    natural,
    parser,
    positive,
    split_options,
)
from split_inference.program import run_program
from split_inference.statistics import Timing
from torch import Tensor

from flagscale_perf.spine.errors import PerfError

if TYPE_CHECKING:
    from split_inference.model import ModelChoice

__all__ = ["DEFAULT_IPC_PATH", "GPUClient", "infer", "main"]


@torch.no_grad()
def infer(model: ProtectedModel, client: GPUClient, args: Namespace) -> Tensor:
    """One prefill, or `--generate` tokens behind it; prints what came out and where its time went."""
    torch.manual_seed(args.seed or 0)
    ids = torch.randint(0, model.sizes.vocab, (args.batch, args.tokens))
    client.statistics.clear()
    in_calls, begun = model.in_calls_ns, perf_counter_ns()
    result = (
        model.generate(ids, args.generate)
        if args.generate
        else model.logits(ids, micro_batches=args.pipeline)
    )
    total_ns = perf_counter_ns() - begun
    if args.generate:
        print(f"Tokens: {result[0, args.tokens :].tolist()}")
    else:
        print(f"Logits: {tuple(result.shape)}, most likely next token: {result[:, -1].argmax(-1).tolist()}")
    overlapping = not args.generate and args.pipeline > 1
    print(client.statistics.tree(Timing(total_ns, model.in_calls_ns - in_calls, overlapping)))
    return result


def whole_model(args: Namespace, dtype: str) -> Any:
    """transformers' own, by the options of the runner."""
    from split_inference.model import DTYPES, make_model

    return make_model(chosen_model(args), DTYPES[dtype.removeprefix("torch.")])


def chosen_model(args: Namespace) -> ModelChoice:
    """By the options of the runner."""
    from split_inference.model import ModelChoice

    return ModelChoice(args.config or DEFAULT_CONFIG, args.model, args.layers, args.seed or 0)


def check_model(client: GPUClient, args: Namespace) -> None:
    """Raises PerfError where an option here is about another model than the server's; without such options
    the server's is taken.
    """
    if args.check or any(each is not None for each in (args.config, args.model, args.layers)):
        from split_inference.model import differences

        theirs = json.loads(client.description)
        if found := differences(chosen_model(args), theirs, args.check):
            raise PerfError(
                f"the server has another model, {theirs.get('source', 'unknown')}: {'; '.join(found)}; give "
                "--config, --model, --layers and --seed as the server has them, or leave them out"
            )


def check(args: Namespace, result: Tensor) -> None:
    """Compares the logits with those of transformers' own model in this process."""
    whole = whole_model(args, str(result.dtype))
    torch.manual_seed(args.seed or 0)
    ids = torch.randint(0, whole.config.vocab_size, (args.batch, args.tokens))
    with torch.no_grad():
        expected = whole(ids, logits_to_keep=1).logits
    if torch.equal(expected, result):
        print("Check: equal to the monolithic model, bit for bit")
    else:
        difference = (expected.float() - result.float()).abs().max()
        largest = expected.abs().max()
        print(f"Check: at most {difference:.3g} from the monolithic model, logits up to {largest:.3g}")


def check_server(client: GPUClient, pipeline: int) -> None:
    """Raises PerfError where the server computes in another type than `LLAMA_DTYPE` here says, or takes fewer
    calls at a time than micro-batches make.
    """
    wanted = os.environ.get("LLAMA_DTYPE")
    if wanted and f"torch.{wanted}" != client.hello.dtype:
        raise PerfError(
            f"LLAMA_DTYPE is {wanted} here, and the server computes in {client.hello.dtype}: start it anew"
        )
    slots = client.hello.slots
    if pipeline > slots:
        raise PerfError(
            f"--pipeline is {pipeline}, and the server takes {slots} calls at a time: start it with "
            f"--slots {pipeline}"
        )


def main() -> int:
    """Connects and infers."""
    made = parser(__doc__ or "")
    add_client(made)
    add_stage(made)
    add_model(made, of_server=True)
    made.add_argument("--tokens", type=positive, default=128, help="of the prompt, which is random")
    made.add_argument(
        "--generate", type=natural, default=0, metavar="N", help="tokens behind the prompt; 0: its logits"
    )
    made.add_argument("--batch", type=positive, default=1, help="sequences")
    made.add_argument("--pipeline", type=positive, default=1, metavar="N", help="micro-batches that overlap")
    made.add_argument(
        "--check",
        action="store_true",
        help="compare with the monolithic model, made here from the model's options",
    )
    args = made.parse_args()
    torch.set_num_threads(args.threads)
    try:
        with GPUClient(
            ipc_path=args.ipc_path, log_file=args.log_file, options=client_options(args)
        ) as client:
            try:
                check_server(client, args.pipeline)
                check_model(client, args)
                model = ProtectedModel(client, split_options(args))
                print(declaration(model.methods()))
                result = infer(model, client, args)
            finally:
                client.print_stats()
    except PerfError as error:
        print(f"tee_runner_optimized.py: {error}", file=sys.stderr)
        return 2
    if args.check and not args.generate:
        check(args, result)
    return 0


if __name__ == "__main__":
    run_program(main)
