"""What hosts without Megatron's command line call the settings that findings name by its flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.rules import Change
from flagscale_perf.options.table import env_of

TRAINER_HOST, BRIDGE_HOST = "transformers", "Megatron-Bridge"
# Megatron's flags that Hugging Face's TrainingArguments have, too
_OF_TRAINER = {
    "--num-workers": "--dataloader_num_workers",
    "--micro-batch-size": "--per_device_train_batch_size",
    "--save-interval": "--save_steps",
    "--eval-interval": "--eval_steps",
    "--log-interval": "--logging_steps",
    "--bf16": "--bf16",
}
# Sections of Bridge's configuration; of a name that several have, the first one's is meant.
_SECTIONS = ("train", "validation", "checkpoint", "ddp", "dataset", "model", "dist", "scheduler", "logger")
_OF_BRIDGE = {
    "ckpt_fully_parallel_save": "fully_parallel_save",
    "ckpt_fully_parallel_load": "fully_parallel_load",
    "ddp_bucket_size": "bucket_size",
    "data_cache_path": "path_to_cache",
    "num_layers_per_virtual_pipeline_stage": "virtual_pipeline_model_parallel_size",
    "bf16": "mixed_precision",
}
_OTHER_VALUE = {"num_layers_per_virtual_pipeline_stage", "bf16"}  # of these a person says what it is there


def flag_of_trainer(flag: str) -> str | None:
    """What Hugging Face's Trainer calls a flag or variable of Megatron or the monitor; None: it has none."""
    name, _, value = flag.partition(" ")
    if not name.startswith("--"):
        return flag  # a variable
    if name.startswith("--perf-"):
        return f"{env_of(name.removeprefix('--').replace('-', '_'))}={value or 1}"
    own = _OF_TRAINER.get(name)
    return f"{own} {value}".strip() if own else None


def place_in_bridge(name: str, settings: Mapping[str, Any]) -> str | None:
    """`num_workers` -> `dataset.num_workers`. None where Bridge, whose settings these are, has none."""
    own = _OF_BRIDGE.get(name, name)
    return next((place for each in _SECTIONS if (place := f"{each}.{own}") in settings), None)


def in_bridge(change: Change, settings: Mapping[str, Any]) -> Change | None:
    """The change as Bridge's overrides, such as `dataset.num_workers=4`; the monitor's options are variables.
    None where this Bridge has none of its settings.
    """
    flags: list[str] = []
    values: dict[str, Any] = {}
    for flag in change.flags:
        head = flag.split(" ")[0]
        if not head.startswith("--") or head.startswith("--perf-"):
            flags.append(flag_of_trainer(flag) or flag)
            continue
        place, value = _placed(head.removeprefix("--").replace("-", "_"), change.settings.get(head), settings)
        if place is not None:
            flags.append(place if value is None else override(place, value))
            values |= {} if value is None else {place: value}
    kept = {name: value for name, value in change.settings.items() if not name.startswith("--")}
    return (
        replace(change, flags=flags, keys=[], settings=kept | values) if flags or not change.flags else None
    )


def _placed(name: str, value: Any, settings: Mapping[str, Any]) -> tuple[str | None, Any]:
    """The place, and the value there; None for one that is not known."""
    place = place_in_bridge(name, settings)
    if place is None and name.startswith("no_"):
        return place_in_bridge(name.removeprefix("no_"), settings), False
    return place, None if name in _OTHER_VALUE else value


def override(place: str, value: Any) -> str:
    """As Hydra takes it."""
    return f"{place}={str(value).lower() if isinstance(value, bool) else value}"
