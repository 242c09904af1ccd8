"""`flagscale-perf flops`: counts a model's FLOPs, component by component."""

from __future__ import annotations

import json
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.blocks import Cell, Note, Quantity, Report, Section, Table
from flagscale_perf.cli.base import Command
from flagscale_perf.cli.training_yaml import read_training_yaml
from flagscale_perf.flops.hf import is_hf
from flagscale_perf.flops.sources import args_from_yaml
from flagscale_perf.flops.tape import CORE_FORMS
from flagscale_perf.flops_calculator import FlopsTable, ModelShape, count
from flagscale_perf.report.text import render
from flagscale_perf.spine.errors import PerfError

_EXAMPLE = "model.json"
_PARTS = {"fwd": "forward", "bwd": "backward", "recompute": "recompute", "padding": "padding"}
_TOTALS = {
    "model_flops_causal_half": "model, causal half",
    "model_flops_full_attention": "model, full attention",
    "model_flops_visible_pairs": "model, visible pairs",
    "model_flops_causal_half_packed": "model, causal half, packed",
    "recompute_flops_causal_half": "recompute, causal half",
    "recompute_flops_full_attention": "recompute, full attention",
    "hardware_flops_causal_half": "hardware, causal half",
    "hardware_flops_full_attention": "hardware, full attention",
}


class FlopsCommand(Command):
    """Prints what one global batch costs: each component and phase, and the totals under every convention."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Which model, which step, which form."""
        parser.add_argument(
            "--args", type=Path, required=True, metavar="FILE", dest="model",
            help=("the model: JSON of Megatron's argument names, a FlagScale training yaml (its Hydra "
                  "defaults are followed), or a Hugging Face config.json"),
        )  # fmt: skip
        parser.add_argument(
            "--batch-size",
            type=_above_zero,
            metavar="N",
            help="sequences (default: the file's global_batch_size)",
        )
        parser.add_argument(
            "--seq-length",
            type=_above_zero,
            metavar="N",
            help="tokens of one sequence (default: the file's seq_length)",
        )
        parser.add_argument(
            "--packed-seq-lens",
            type=_lengths,
            metavar="A,B,...",
            help="lengths of the documents in the whole batch",
        )
        parser.add_argument(
            "--core",
            choices=CORE_FORMS,
            default=CORE_FORMS[0],
            help=("products of a recurrent layer's core: by its recurrence (model FLOPs), chunk by chunk as "
                  "kernels do (hardware FLOPs), or what Megatron-LM reports (default: recurrent)"),
        )  # fmt: skip
        parser.add_argument(
            "--decoder-seq-length",
            type=_above_zero,
            metavar="N",
            help="tokens of the decoder's sequence of a model that has an encoder, too (default: the file's)",
        )
        parser.add_argument(
            "--image-grids",
            type=_grids,
            metavar="'T,H,W;...'",
            help=(
                "the images of the step, for a model with a vision tower: frames, and patches along height "
                "and width, of each; or none (default: the file's image_grids)"
            ),
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object of exact integers")

    def run(self, args: Namespace) -> int:
        """Prints it. Raises PerfError for a file that describes no model."""
        beside = {"decoder_seq_length": args.decoder_seq_length, "image_grids": args.image_grids}
        given, shape = _read_model(
            args.model, {name: value for name, value in beside.items() if value is not None}
        )
        batch = _step_size(args.batch_size, given, "global_batch_size", "--batch-size")
        length = _step_size(args.seq_length, given, "seq_length", "--seq-length")
        table = count(shape, batch, length, args.packed_seq_lens, args.core)
        if args.json:
            print(json.dumps(table.as_dict(), indent=2))
        else:
            why = shape.hardware_unknown or f"--core {args.core} has no formula for this model"
            print(render(report_of(table, length, why)), end="")
        return 0


def report_of(table: FlopsTable, seq_length: int, why_unknown: str) -> Report:
    """Exact FLOPs, and each component's share of all the work, attention counted in full. `why_unknown`: said
    of hardware FLOPs where the table has none.
    """
    work = sum(sum(parts.values()) for parts in table.components.values())
    shown = {
        key: label
        for key, label in _PARTS.items()
        if key != "padding" or any(parts.get(key) for parts in table.components.values())
    }
    rows: list[Sequence[Cell]] = [
        (name, *(Quantity(parts[key]) for key in shown), Quantity(sum(parts.values()) / work, "share", 2))
        for name, parts in table.components.items()
    ]
    totals = [
        (label, Quantity(table.totals[name]))
        for name, label in _TOTALS.items()
        if table.totals[name] is not None
    ]
    is_known = table.totals["hardware_flops_causal_half"] is not None
    notes = [] if is_known else [Note(f"hardware FLOPs are not known: {why_unknown}")]
    return Report(
        title=(
            f"{table.family}, {table.parameters:,} parameters,"
            f" {table.batch_size} sequences of {seq_length} tokens"
        ),
        facts=[Note(f"FLOPs of one step, core attention in full (s x s pairs){_form(table)}")],
        sections=[
            Section(
                "components", "", "", [Table(("component", *shown.values(), "share"), rows, 1 + len(shown))]
            ),
            Section("totals", "", "", [Table(("FLOPs of one step", "all"), totals, 1)]),
            Section("unknown", "", "", notes),
        ],
        content=table,
    )


def _form(table: FlopsTable) -> str:
    """Which products count for the cores of recurrent layers, if the model has any."""
    first, *others = table.totals_by_core.values()
    return f", cores of recurrent layers {table.core}" if any(first != other for other in others) else ""


def _read_model(path: Path, more: Mapping[str, Any]) -> tuple[Mapping[str, Any], ModelShape]:
    """The file's arguments, flat, and the shape they describe together with `more`."""
    content = _parse(path)
    if is_hf(content):
        return content, ModelShape.from_hf({**content, **more})
    flat = {**args_from_yaml(content), **more}
    return flat, ModelShape.from_args(flat)


def _parse(path: Path) -> Mapping[str, Any]:
    if path.suffix in (".yaml", ".yml"):
        try:
            return read_training_yaml(path)
        except PerfError as error:
            raise PerfError(f"--args {error}") from None
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise PerfError(f"--args {path}: cannot be read ({why}); give a file such as {_EXAMPLE}") from None
    except (ValueError, RecursionError) as error:
        raise PerfError(f"--args {path}: is neither JSON nor yaml ({error}); mend it") from None
    if not isinstance(content, Mapping):
        raise PerfError(
            f"--args {path}: holds no arguments but {type(content).__name__}; write an object of names "
            "and values"
        )
    return content


def _step_size(chosen: int | None, given: Mapping[str, Any], name: str, flag: str) -> int:
    value = given.get(name) if chosen is None else chosen
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise PerfError(f"{name} is {value!r} in the file; give {flag} N")


def _above_zero(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def _grids(text: str) -> str | list[str]:
    return [] if text.strip().lower() == "none" else text


def _lengths(text: str) -> list[int]:
    return [_above_zero(one.strip()) for one in text.split(",")]
