"""`flagscale-perf peak`: shows or measures a device's peak FLOP/s."""

from __future__ import annotations

import textwrap
from argparse import ArgumentParser, Namespace
from typing import Any

from flagscale_perf.cli.base import Command, add_choice
from flagscale_perf.device.peaks import find_peak, is_known, known_names, near_names
from flagscale_perf.device.roofs import SIDES, kind_of_device, product
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

SECONDS = 2.0  # that a measurement lasts
_TERA = 1e12
_NAMES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


class PeakCommand(Command):
    """Prints a device's datasheet peak and what this machine reaches with large matrix products."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the device and the data type."""
        parser.add_argument(
            "--device",
            metavar="NAME",
            help='look this name up, such as "NVIDIA H200", and measure nothing',
        )
        add_choice(parser, "--dtype", ("bf16", "fp16", "fp32", "fp8"), "data type (default: bf16)")

    def run(self, args: Namespace) -> int:
        """Raises PerfError where there is nothing to measure with."""
        if args.device is None:
            _measure(args)
            return 0
        _print_datasheet(args.device, args.dtype)
        if not is_known(args.device):
            near = near_names(args.device)
            listing = ", ".join(near or known_names())
            label = f"{'near' if near else 'known':11}"
            print(textwrap.fill(listing, 100, initial_indent=label, subsequent_indent=" " * 11))
        return 0


def _measure(args: Namespace) -> None:
    if args.dtype == "fp8":
        raise PerfError(
            "--dtype fp8: cannot be measured with plain matrix products; measure bf16, or look fp8 up"
            " with --device NAME"
        )
    torch = _torch()
    kind = kind_of_device(torch)
    size = SIDES[kind]
    peak = _print_datasheet(torch.cuda.get_device_name() if kind == "cuda" else "CPU", args.dtype)
    try:
        best = product(torch, getattr(torch, _NAMES[args.dtype]), size, SECONDS)
    except RuntimeError as error:  # torch's for no memory, or no product of this type on this device
        raise PerfError(
            f"--dtype {args.dtype}: {str(error).splitlines()[0]}; free the device's memory, or take another"
            " --dtype"
        ) from None
    reached = 2 * size**3 / best.seconds
    share = f", {100 * reached / peak:.1f} % of the datasheet" if peak else ""
    print(
        f"measured   {reached / _TERA:.4g} TFLOP/s (best of {best.rounds} products of {size} x {size}"
        f" matrices{share})"
    )


def _print_datasheet(name: str, dtype: str) -> float | None:
    found = find_peak(name, dtype)
    figure = f"{found.flop_per_s / _TERA:g} TFLOP/s" if found.flop_per_s else "unknown"
    print(f"device     {name}\ndtype      {dtype}\ndatasheet  {figure} ({found.source})")
    return found.flop_per_s


def _torch() -> Any:
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its libraries
        raise missing("torch", error, "measuring", "look a device up with --device NAME") from None
    return torch
