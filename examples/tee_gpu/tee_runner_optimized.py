"""The protected side: runs a split model by calls to a GPU server, and says where the time went."""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from time import perf_counter_ns
from typing import TYPE_CHECKING, get_args

import needed  # noqa: F401
import torch
from split_inference.client import DEFAULT_IPC_PATH, DEFAULT_LOG_FILE, GPUClient, GPUClientOptions
from split_inference.forward import ProtectedModel, SplitOptions
from split_inference.options import DEFAULT_CONFIG, add_model, parser, positive, run_program
from split_inference.traffic import Stage, declaration
from tensor_rpc.options import Payload
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
    is_overlapping = not args.generate and args.pipeline > 1
    print(client.statistics.tree(total_ns, model.in_calls_ns - in_calls, is_overlapping))
    return result


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
    from split_inference.model import make_model

    whole = make_model(chosen_model(args), result.dtype)
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
    wanted, server = os.environ.get("LLAMA_DTYPE"), client.hello.server
    if wanted and f"torch.{wanted}" != server.dtype:
        raise PerfError(
            f"LLAMA_DTYPE is {wanted} here, and the server computes in {server.dtype}: start it anew"
        )
    if pipeline > server.slots:
        raise PerfError(
            f"--pipeline is {pipeline}, and the server takes {server.slots} calls at a time: start it with "
            f"--slots {pipeline}"
        )


def options() -> ArgumentParser:
    """Of the runner."""
    made = parser(__doc__ or "")
    made.add_argument("--payload", choices=get_args(Payload), default="auto", help="how arrays travel")
    made.add_argument("--methods", default="", metavar="A,B", help="record only calls of these")
    made.add_argument("--log-file", default=DEFAULT_LOG_FILE, help="a line a call, as it happens")
    made.add_argument("--perf-log-dir", default="logs/rpc", help="of the run file, for flagscale-perf report")
    made.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for a server that is starting"
    )
    made.add_argument(
        "--stage", choices=[*map(str, Stage)], default=str(Stage.CALLS6), help="how a layer is cut into calls"
    )
    made.add_argument(
        "--repeat-kv",
        action=BooleanOptionalAction,
        default=True,
        help="send Matmul keys and values once per query head",
    )
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
    return made


def natural(text: str) -> int:
    """0 or more. Raises what argparse turns into a message."""
    if int(text) < 0:
        raise ValueError
    return int(text)


def main() -> int:
    """Connects and infers."""
    args = options().parse_args()
    torch.set_num_threads(args.threads)
    connection = GPUClientOptions(args.payload, args.wait, methods=args.methods, directory=args.perf_log_dir)
    try:
        with GPUClient(args.ipc_path, args.log_file, connection) as client:
            try:
                check_server(client, args.pipeline)
                check_model(client, args)
                model = ProtectedModel(client, SplitOptions(Stage(args.stage), args.repeat_kv))
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
