"""Options of the programs."""

from __future__ import annotations

import os
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path
from typing import get_args

from tensor_rpc.options import Payload

from split_inference.traffic import Stage

from .client import DEFAULT_IPC_PATH, DEFAULT_LOG_FILE, GPUClientOptions
from .forward import SplitOptions

IPC_VARIABLE = "LLAMA_IPC_PATH"
DEFAULT_CONFIG = "tiny"


def positive(text: str) -> int:
    """1 or more. Raises what argparse turns into a message."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def natural(text: str) -> int:
    """0 or more."""
    if int(text) < 0:
        raise ValueError
    return int(text)


def parser(description: str) -> ArgumentParser:
    """With the options of every program."""
    made = ArgumentParser(description=description, formatter_class=ArgumentDefaultsHelpFormatter)
    made.add_argument(
        "--ipc-path",
        default=os.environ.get(IPC_VARIABLE) or DEFAULT_IPC_PATH,
        help=f"where the server listens; {IPC_VARIABLE}, unless empty, is the default",
    )
    made.add_argument(
        "--threads", type=positive, default=1, help="of torch on the CPU; 1 leaves the other side its core"
    )
    return made


def add_model(made: ArgumentParser, of_server: bool = False) -> None:
    """Which model: here, or, of a runner, the one that the server is expected to have."""
    config, seed = (None, None) if of_server else (DEFAULT_CONFIG, 0)
    made.add_argument("--config", default=config, help="a model with random weights, by name")
    made.add_argument("--model", type=Path, metavar="DIR", help="a directory of safetensors instead")
    made.add_argument("--layers", type=positive, help="this many, instead of the configuration's number")
    made.add_argument("--seed", type=int, default=seed, help="of random weights")


def add_stage(made: ArgumentParser) -> None:
    """How the model is split."""
    made.add_argument("--stage", choices=[str(stage) for stage in Stage], default=str(Stage.CALLS6),
                      help="how a layer is cut into calls")  # fmt: skip
    made.add_argument("--repeat-kv", action=BooleanOptionalAction, default=True,
                      help="send Matmul keys and values once per query head")  # fmt: skip


def add_client(made: ArgumentParser) -> None:
    """How the server is called, and what is recorded."""
    made.add_argument("--payload", choices=get_args(Payload), default="auto", help="how arrays travel")
    made.add_argument("--methods", default="", metavar="A,B", help="record only calls of these")
    made.add_argument("--log-file", default=DEFAULT_LOG_FILE, help="a line a call, as it happens")
    made.add_argument("--perf-log-dir", default="logs/rpc", help="of the run file, for flagscale-perf report")
    made.add_argument(
        "--wait", type=float, default=60.0, metavar="SECONDS", help="for a server that is starting"
    )


def split_options(args: Namespace) -> SplitOptions:
    """What `add_stage` has read."""
    return SplitOptions(Stage(args.stage), args.repeat_kv)


def client_options(args: Namespace) -> GPUClientOptions:
    """What `add_client` has read."""
    return GPUClientOptions(
        payload=args.payload, wait_s=args.wait, methods=args.methods, directory=args.perf_log_dir
    )
