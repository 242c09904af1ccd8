"""What hosts without Megatron's command line call the settings of findings and of what-if."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.rules import Change
from flagscale_perf.options.table import env_of
from flagscale_perf.training.facts import RunFacts

TRAINER_HOST, BRIDGE_HOST = "transformers", "Megatron-Bridge"
LIGHTNING_HOSTS = ("lightning", "pytorch_lightning")
# Megatron's arguments that Hugging Face's TrainingArguments have, too; `_ACCUMULATED` is theirs.
_ACCUMULATED = "gradient_accumulation_steps"
_OF_TRAINER = {
    "num_workers": "dataloader_num_workers",
    "micro_batch_size": "per_device_train_batch_size",
    "save_interval": "save_steps",
    "eval_interval": "eval_steps",
    "log_interval": "logging_steps",
    "bf16": "bf16",
    _ACCUMULATED: _ACCUMULATED,
}
# These hold where a strategy says so, and below 1 they are a share of the training.
_STRATEGIES = {
    "save_steps": "save_strategy",
    "eval_steps": "eval_strategy",
    "logging_steps": "logging_strategy",
}
# Where a script of Lightning's gives them; what it gives is not recorded.
_OF_LIGHTNING = {
    "num_workers": "DataLoader.num_workers",
    "micro_batch_size": "DataLoader.batch_size",
    "save_interval": "ModelCheckpoint.every_n_train_steps",
    "eval_interval": "Trainer.val_check_interval",
    "log_interval": "Trainer.log_every_n_steps",
    "bf16": "Trainer.precision",
    _ACCUMULATED: "Trainer.accumulate_grad_batches",
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


def is_trainer(host: str) -> bool:
    """Whether the host is Hugging Face's Trainer, whose arguments say nothing of the model."""
    return host.startswith(TRAINER_HOST)


def _is_lightning(host: str) -> bool:
    return host.split(" ")[0] in LIGHTNING_HOSTS


def _is_bridge(facts: RunFacts) -> bool:
    return facts.arguments is not None and facts.host.startswith(BRIDGE_HOST)


def accumulates(facts: RunFacts) -> bool:
    """Whether the host is told a step's micro-batches, and not its samples."""
    return is_trainer(facts.host) or _is_lightning(facts.host)


def place_of(name: str, facts: RunFacts) -> str | None:
    """What the run's host calls Megatron's argument, such as `dataset.num_workers` for `num_workers`; None
    where it has none.
    """
    if is_trainer(facts.host):
        return _OF_TRAINER.get(name)
    if _is_lightning(facts.host):
        return _OF_LIGHTNING.get(name)
    if not _is_bridge(facts):
        return name
    own, settings = _OF_BRIDGE.get(name, name), facts.arguments or {}
    return next((place for each in _SECTIONS if (place := f"{each}.{own}") in settings), None)


def value_of(name: str, facts: RunFacts) -> Any:
    """The value of Megatron's argument in this run; None where it is unset or not known."""
    arguments, place = facts.arguments or {}, place_of(name, facts) or name
    value = arguments.get(place)
    if is_trainer(facts.host) and place in _STRATEGIES:
        by_steps = arguments.get(_STRATEGIES[place]) == "steps"
        return value if by_steps and isinstance(value, int | float) and value >= 1 else None
    return value


def in_own_names(change: Change, facts: RunFacts) -> Change | None:
    """The change in the settings of the run's host: arguments of Hugging Face's Trainer, overrides of
    Bridge's configuration such as `dataset.num_workers=4`; the monitor's options are variables. None where
    the host has none of them.
    """
    if not (accumulates(facts) or _is_bridge(facts)):
        return change
    flags: list[str] = []
    values = {name: value for name, value in change.settings.items() if not name.startswith("--")}
    for flag in change.flags:
        head, _, rest = flag.partition(" ")
        if not head.startswith("--"):
            flags.append(flag)  # a variable
        elif head.startswith("--perf-"):
            flags.append(f"{env_of(head.removeprefix('--').replace('-', '_'))}={rest or 1}")
        else:
            own = _placed(head.removeprefix("--").replace("-", "_"), change.settings.get(head), facts)
            flags += [_written(place, value, facts) for place, value in own.items()]
            values |= {_head(place, facts): value for place, value in own.items() if value is not None}
    return replace(change, flags=flags, keys=[], settings=values) if flags or not change.flags else None


def _placed(name: str, value: Any, facts: RunFacts) -> dict[str, Any]:
    """The host's settings for that one, by their names; None for a value that a person has to find."""
    place = place_of(name, facts)
    if place is None and name.startswith("no_"):
        off = place_of(name.removeprefix("no_"), facts)
        return {} if off is None else {off: False}
    if place is None:
        return {}
    if not is_trainer(facts.host) or value is None:
        is_other = _is_lightning(facts.host) or (_is_bridge(facts) and name in _OTHER_VALUE)
        return {place: None if is_other else value}
    arguments = facts.arguments or {}
    if name == "bf16" and arguments.get("fp16"):
        return {place: value, "fp16": False}  # it takes one of them
    return {place: value}


def of_one_batch(change: Change, facts: RunFacts) -> Change:
    """A change of the micro-batch with the accumulation that leaves a step's samples as they are, for a host
    that would train on others; without a value where no accumulation does.
    """
    size, now = change.settings.get("--micro-batch-size"), value_of("micro_batch_size", facts)
    steps = value_of(_ACCUMULATED, facts)
    if size is None or not is_trainer(facts.host) or not now or not steps:
        return change
    count, rest = divmod(now * steps, size)
    if rest:
        return replace(change, flags=["--micro-batch-size"], settings={})
    accumulated = "--" + _ACCUMULATED.replace("_", "-")
    return replace(
        change,
        flags=[*change.flags, f"{accumulated} {count}"],
        settings={**change.settings, accumulated: count},
    )


def _head(place: str, facts: RunFacts) -> str:
    return f"--{place}" if is_trainer(facts.host) else place


def _written(place: str, value: Any, facts: RunFacts) -> str:
    head = _head(place, facts)
    if value is None:
        return head
    if not is_trainer(facts.host):
        return override(place, value)
    return head if value is True else f"{head} {plain(value)}"


def override(place: str, value: Any) -> str:
    """As Hydra takes it."""
    return f"{place}={plain(value)}"


def plain(value: Any) -> str:
    """As a command line has it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
