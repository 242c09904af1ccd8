"""What the programs have in common: options, and how they end."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentDefaultsHelpFormatter, ArgumentParser
from collections.abc import Callable
from pathlib import Path

from flagscale_perf.cli import EXIT_BROKEN_PIPE
from flagscale_perf.spine.interrupted import EXIT_INTERRUPTED

DEFAULT_IPC_PATH = "ipc:///tmp/tsqp_gpu_server.ipc"
IPC_VARIABLE = "LLAMA_IPC_PATH"
DEFAULT_CONFIG = "tiny"


def positive(text: str) -> int:
    """1 or more. Raises what argparse turns into a message."""
    if int(text) < 1:
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


def run_program(main: Callable[[], int]) -> None:
    """Ends the process as `main` says, and without a traceback where its reader has gone (`| head -1`) or
    Ctrl-C is pressed.
    """
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout once more when it ends: into nothing, instead of raising again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_BROKEN_PIPE
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    sys.exit(code)
