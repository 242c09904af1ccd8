"""Files of arguments: which tool wrote one, what its names are in Megatron's, and what of it is refused.

A name that may be a size and is in no list of `host_options.toml` is refused: what it does is not known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.flops.bridge_config import SECTIONS, args_from_bridge, is_bridge
from flagscale_perf.flops.core_names import CORE_NAMES
from flagscale_perf.flops.hf import KEYS
from flagscale_perf.flops.sources import NOTHING, UNCOUNTED
from flagscale_perf.spine.errors import PerfError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # the same, before it came with Python

# A name -> the tool whose files have it, and no file that is read here.
_TOOLS = {
    "actor_rollout_ref": "verl",
    "base_model": "Axolotl",
    "base_model_name_or_path": "PEFT",
    "exp_manager": "NeMo",
    "finetuning_type": "LLaMA-Factory",
    "flavor": "torchtitan",
    "gradient_accumulation_steps": "Hugging Face's Trainer",
    "model_name_or_path": "Hugging Face's Trainer",
    "per_device_train_batch_size": "Hugging Face's Trainer",
    "train_micro_batch_size_per_gpu": "DeepSpeed",
    "zero_optimization": "DeepSpeed",
}
# Names of other tools -> what to write.
_INSTEAD = {key: name for name, keys in KEYS.items() for key in keys if key != name} | {
    "num_key_value_heads": "group_query_attention and num_query_groups",
    "tie_word_embeddings": "untie_embeddings_and_output_weights",
}
# A flag of the command line -> what it sets to False.
_SWITCHED_OFF = {
    "bert_no_binary_head": "bert_binary_head",
    "disable_bias_linear": "add_bias_linear",
    "no_position_embedding": "add_position_embedding",
}
_SIZE = re.compile(
    r"(^|_)(n?layers?|hidden|n?heads?|n?experts?|moe|ffn|mlp|intermediate|inner|vocab|embd|embeddings?|dims?"
    r"|width|depth|router|topk|residual|kv|q|k|v|query|queries|groups|window|sliding|mtp|nextn|lora|dora|peft"
    r"|adapters?|r|(un)?freez\w*|(un)?frozen|trainable|train_only|only_train"
    r"|quant\w*|[48]bit|attention|attn|activation|gate|gated|\w*glu|bias|norm|tie|tied|tying|share|blocks?"
    r"|size|num|count|mult|multiplier|expan\w*|compress\w*|loops?|repeat\w*|recur\w*|mla|yoco|hc|pooler"
    r"|critic|reward|ref|distil\w*|kd|checkpointing|state|conv|rank|indexer|latent|mamba|ssm|n|d|arch\w*"
    r"|vision|encoder|decoder|teacher|spec|streams)(_|$)"
)


@cache
def _lists() -> tuple[frozenset[str], frozenset[str]]:
    """Names that are read, and those without influence."""
    path = Path(__file__).with_name("host_options.toml")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    idle = [name for names in content["no_influence"].values() for name in names.split()]
    return frozenset((content["counted"] + content["own"]).split()) | _SWITCHED_OFF.keys(), frozenset(idle)


def args_from_file(content: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments in a file's content, sections or none, in Megatron's names.

    Raises PerfError for a file of a tool that is not read, for a size that two sections give, and for a name
    that may be a size and is not known.
    """
    if is_bridge(content):
        for name, value in content.items():
            if name not in SECTIONS:
                refuse_unknown(name, value)
        args = args_from_bridge(content)
    else:
        _refuse_tools(content)
        args = {}
        for name, value in _leaves(_of_training(content)):
            _put(args, name, value)
        if isinstance(content.get("language_model"), Mapping):  # Megatron's --yaml-cfg
            args.setdefault("num_moe_experts", None)
        if not any(isinstance(value, Mapping) for value in content.values()):
            _refuse_ambiguous(Arguments(args))
    for name, value in args.items():
        refuse_unknown(name, value)
    off = {name: flag for flag, name in _SWITCHED_OFF.items() if Arguments(args).flag(flag)}
    for name, flag in off.items():
        if args.get(name) is not None and Arguments(args).flag(name):
            raise PerfError(f"model: {name} and {flag} are both given; leave one of them in the file")
    return args | dict.fromkeys(off, False)


def _of_training(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """What FlagScale hands its training: beside it is how the job runs, and what its tuner tries."""
    train = content.get("train")
    return train if isinstance(train, Mapping) and "experiment" in content else content


def _leaves(section: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Raises PerfError for a section that may be a part of the model, such as adapters."""
    for given, value in section.items():
        name = str(given).replace("-", "_")
        values = value if isinstance(value, list) else [value]
        inner = [each for each in values if isinstance(each, Mapping)]
        for each in inner:
            refuse_unknown(name, dict(each) or None)
            yield from _leaves(each)
        if not inner:
            yield name, value


def _put(args: dict[str, Any], name: str, value: Any) -> None:
    before = args.get(name)
    if name in _lists()[0] and None not in (before, value) and before != value:
        raise PerfError(
            f"model: {name} is given twice, {before!r} and {value!r}; leave one of them in the file"
        )
    if value is not None or name not in args:
        args[name] = value


def _refuse_tools(section: Mapping[str, Any]) -> None:
    for name, value in section.items():
        if name in _TOOLS or name == "_target_":
            tool = _TOOLS.get(name, "another tool")
            raise PerfError(
                f"model: the file has {name} ({_short(value)}), so it is one of {tool}, whose names are not "
                "read; give the model's config.json of Hugging Face, or Megatron's argument names"
            )
        if isinstance(value, Mapping):
            _refuse_tools(value)


def _refuse_ambiguous(args: Arguments) -> None:
    """What Megatron's options ignore and TransformerConfig takes; a file may be meant either way."""
    if any(args.has(name) for name in CORE_NAMES):
        return
    groups, heads = args.get("num_query_groups"), args.get("num_attention_heads")
    for name, flag, counts in (
        ("num_query_groups", "group_query_attention", groups not in (None, heads)),
        ("kv_lora_rank", "multi_latent_attention", args.get("kv_lora_rank") is not None),
    ):
        if counts and not args.has(flag) and not args.flag("multi_latent_attention"):
            raise PerfError(
                f"model: {name} is {args.get(name)!r}, and {flag} is not given, without which Megatron's "
                f"options ignore it; write {flag} true or false"
            )


def refuse_unknown(name: str, value: Any) -> None:
    """Raises PerfError where the name may be a size, is in no list, and its value is not that of nothing."""
    counted, idle = _lists()
    is_off = value is None or (name not in _INSTEAD and str(value).strip().lower() in NOTHING)
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()  # numLayers: num_layers
    if is_off or name in counted or name in UNCOUNTED or not (name in _INSTEAD or _SIZE.search(words)):
        return
    if not {name, name.removeprefix("no_"), name.removeprefix("disable_")} & idle:
        wanted = (
            f"write {_INSTEAD[name]}" if name in _INSTEAD else "write Megatron's argument, or take it out"
        )
        raise PerfError(
            f"model: {name} is {_short(value)}; no argument of Megatron or FlagScale that is known here has "
            f"this name, and it may change the model's size; {wanted}"
        )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
