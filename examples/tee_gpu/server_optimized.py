"""The GPU side: holds the model and multiplies for the protected side, until SIGINT or SIGTERM."""

from __future__ import annotations

import sys

import needed  # noqa: F401
import torch
from split_inference.gpu_side import GpuSide
from split_inference.model import DTYPES, ModelChoice, chosen_device, chosen_dtype
from split_inference.options import add_model, parser, positive, run_program
from split_inference.server import Capacity, handlers, recording, server_options
from tensor_rpc.server import Server

from flagscale_perf.spine.errors import PerfError


def main() -> int:
    """Serves."""
    made = parser(__doc__ or "")
    add_model(made)
    made.add_argument(
        "--dtype", choices=DTYPES, help="default: LLAMA_DTYPE, else bfloat16 on a GPU, float32 on a CPU"
    )
    made.add_argument(
        "--max-tokens", type=positive, default=1024, help="of a sequence, which shared memory is made for"
    )
    made.add_argument("--max-batch", type=positive, default=1, help="sequences of a call, likewise")
    made.add_argument("--slots", type=positive, default=2, help="calls of a client under way at a time")
    made.add_argument("--max-clients", type=positive, default=8, help="each has shared memory of its own")
    made.add_argument("--perf-log-dir", help="record the calls on this side, too: a run file there")
    args = made.parse_args()
    torch.set_num_threads(args.threads)
    try:
        device = chosen_device()
        dtype = chosen_dtype(args.dtype, device)
        print(f"Device: {device}, Dtype: {dtype}", flush=True)
        side = GpuSide(ModelChoice(args.config, args.model, args.layers, args.seed), dtype, device)
        capacity = Capacity(args.max_tokens, args.max_batch, args.slots, args.max_clients)
        options = server_options(side, capacity, args.ipc_path)
        with recording(args.perf_log_dir, options) as observe:
            server = Server(handlers(side), options, observe)
            print(f"GPU server listening at {server.endpoint}", flush=True)
            server.serve()
    except PerfError as error:
        print(f"server_optimized.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    run_program(main)
