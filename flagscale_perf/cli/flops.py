"""`flagscale-perf flops`: counts a model's FLOPs, component by component."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.blocks import Cell, Note, Quantity, Report, Section, Table
from flagscale_perf.cli.base import Command, add_choice, add_count, local_path, whole_number
from flagscale_perf.flops.files import args_from_file
from flagscale_perf.flops.hf import is_hf
from flagscale_perf.flops.tape import CORE_FORMS
from flagscale_perf.flops_calculator import FlopsTable, ModelShape, count
from flagscale_perf.report.text import render
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

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
        """Arguments: the model, the step, the form."""
        add = parser.add_argument
        add(
            "--args",
            type=local_path,
            required=True,
            metavar="FILE",
            dest="model",
            help="the model: JSON of Megatron's argument names, a FlagScale training yaml (its Hydra defaults"
            " are followed), Megatron-Bridge's run_config.yaml, Megatron's --yaml-cfg, or a Hugging Face"
            " config.json",
        )
        add_count(parser, "--batch-size", "sequences (default: the file's global_batch_size)")
        add_count(parser, "--seq-length", "tokens of one sequence (default: the file's seq_length)")
        add(
            "--packed-seq-lens",
            type=_lengths,
            metavar="A,B,...",
            help="lengths of the documents in the whole batch",
        )
        add_count(
            parser, "--vocab-size", "the tokenizer's vocabulary, for a file that leaves it to a tokenizer"
        )
        add_choice(
            parser,
            "--core",
            CORE_FORMS,
            "products of a recurrent layer's core: by its recurrence (model FLOPs), chunk by chunk as kernels"
            " do (hardware FLOPs), or what Megatron-LM reports (default: recurrent)",
        )
        add_count(
            parser,
            "--decoder-seq-length",
            "tokens of the decoder's sequence of a model that has an encoder, too (default: the file's)",
        )
        add(
            "--image-grids",
            type=_grids,
            metavar="'T,H,W;...'",
            help="the images of the step, for a model with a vision tower: frames, and patches along height"
            " and width, of each; or none (default: the file's image_grids)",
        )
        add("--json", action="store_true", help="print one JSON object of exact integers")

    def run(self, args: Namespace) -> int:
        """Prints it. Raises PerfError for a file that describes no model."""
        beside = {
            "decoder_seq_length": args.decoder_seq_length,
            "image_grids": args.image_grids,
            "vocab_size": args.vocab_size,
        }
        more = {name: value for name, value in beside.items() if value is not None}
        given, shape = _read_model(args.model, more)
        batch = _step_size(args.batch_size, given, "global_batch_size", "--batch-size")
        length = _step_size(args.seq_length, given, "seq_length", "--seq-length")
        table = count(shape, batch, length, args.packed_seq_lens, args.core)
        if args.json:
            print(json.dumps(table.as_dict(), indent=2))
        else:
            why = shape.hardware_unknown or f"--core {args.core} has no formula for this model"
            has_bias = shape.experts is not None and shape.linear_bias and shape.vision is None
            print(render(report_of(table, length, why, shape.drops, has_bias)), end="")
        return 0


def report_of(
    table: FlopsTable, seq_length: int, why_unknown: str, drops: bool = False, router_bias: bool = False
) -> Report:
    """Exact FLOPs, and each component's share of all the work, attention counted in full. `why_unknown`: said
    of hardware FLOPs where the table has none; `drops`: tokens may be dropped; `router_bias`: parameters
    include one.
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
    if drops:
        notes.append(
            Note(
                "tokens that experts drop beyond their capacity are counted: how many, only the router knows"
            )
        )
    if router_bias:
        notes.append(
            Note(
                "parameters include a bias of every router, as Megatron-Core 0.16 and later have one; "
                "0.15 has none: num_experts fewer for every layer of experts"
            )
        )
    labels = ("component", *shown.values(), "share")
    return Report(
        title=(
            f"{table.family}, {table.parameters:,} parameters,"
            f" {table.batch_size} sequences of {seq_length} tokens"
        ),
        facts=[Note(f"FLOPs of one step, core attention in full (s x s pairs){_form(table)}")],
        sections=[
            Section("components", "", "", [Table(labels, rows, 1 + len(shown))]),
            Section("totals", "", "", [Table(("FLOPs of one step", "all"), totals, 1)]),
            Section("unknown", "", "", notes),
        ],
        content=table,
    )


def _form(table: FlopsTable) -> str:
    """The form in which the cores of recurrent layers are counted, if the model has any."""
    first, *others = table.totals_by_core.values()
    return f", cores of recurrent layers {table.core}" if any(first != other for other in others) else ""


def _read_model(path: Path, more: Mapping[str, Any]) -> tuple[Mapping[str, Any], ModelShape]:
    """The file's arguments, flat, and the shape they describe together with `more`."""
    content = _parse(path)
    if is_hf(content):
        return content, ModelShape.from_hf({**content, **more})
    flat = {**args_from_file(content), **more}
    return flat, ModelShape.from_args(flat)


def _parse(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        is_yaml = path.suffix in (".yaml", ".yml")
        content = _yaml(text) if is_yaml else json.loads(text, object_pairs_hook=_once)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise PerfError(f"--args {path}: cannot be read ({why}); give a file such as model.json") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise PerfError(f"--args {path}: is neither JSON nor yaml ({reason}); mend it") from None
    if not isinstance(content, Mapping):
        raise PerfError(
            f"--args {path}: holds no arguments but {type(content).__name__}; write an object of names "
            "and values"
        )
    return _composed(path) if "defaults" in content else content


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """The pairs as a dictionary. Raises ValueError for a name that is there twice."""
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"{name} is given twice")
        content[name] = value
    return content


def _yaml(text: str) -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as error:
        raise missing("yaml", error, "--args FILE.yaml", "give the file as JSON") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        """Like yaml's own, which takes the last of names that are given twice."""

        def compose_mapping_node(self, anchor: str | None) -> Any:
            node = super().compose_mapping_node(anchor)  # before names that `<<` merges in are among its own
            _once([(one.value, None) for one, _ in node.value if one.tag.endswith(":str")])
            return node

    try:
        return Loader(text).get_single_data()
    except yaml.YAMLError as error:
        raise ValueError(error) from None


def _composed(path: Path) -> Mapping[str, Any]:
    try:
        from hydra import compose, initialize_config_dir
        from hydra.errors import HydraException
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException
        from yaml import YAMLError
    except ImportError as error:
        raise missing("hydra", error, f"--args {path}: its defaults list", "write out what it adds") from None
    try:
        with initialize_config_dir(str(path.parent.absolute()), version_base=None):
            content = OmegaConf.to_container(compose(path.stem), resolve=False)
    except (HydraException, OmegaConfBaseException, YAMLError, OSError, ValueError, TypeError) as error:
        reason = " ".join(str(error).partition("Config search path")[0].split()).rstrip(".")
        raise PerfError(f"--args {path}: Hydra cannot put it together: {reason}; mend its defaults") from None
    except RecursionError:
        raise PerfError(f"--args {path}: its defaults are circular; take one of them out") from None
    assert isinstance(content, dict)
    return {str(name): value for name, value in content.items()}


def _step_size(chosen: int | None, given: Mapping[str, Any], name: str, flag: str) -> int:
    value = given.get(name) if chosen is None else chosen
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    raise PerfError(f"{name} is {value!r} in the file; give {flag} N")


def _grids(text: str) -> str | list[str]:
    return [] if text.strip().lower() == "none" else text


def _lengths(text: str) -> list[int]:
    return [whole_number(one.strip()) for one in text.split(",")]
