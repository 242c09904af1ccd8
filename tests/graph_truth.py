"""Whether each node of the backward pass gets the module that made it: a walk of autograd's graph says which.

python -m tests.graph_truth DIRECTORY RANK {huggingface,megatron} [WORD ...]

Words: tensor, sequence, expert (two ranks each), recompute, selective, reentrant.

`rankN.json` then has how many nodes ran, how many have the module that made them, and some that have not.
"""

from __future__ import annotations

import importlib
import json
import sys
import sysconfig
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from flagscale_perf.profile.attribution import NODE, Attribution
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.ranges import STEP, Ranges, paths_of

FLAGSCALE = Path(sysconfig.get_path("purelib")) / "flag_scale"
Made = dict[tuple[str, int], str]
# What a word means for Megatron's configuration.
GIVEN: dict[str, dict[str, Any]] = {
    "recompute": {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    },
    "selective": {"recompute_granularity": "selective", "recompute_modules": ["core_attn"]},
    "expert": {
        "num_moe_experts": 2,
        "expert_model_parallel_size": 2,
        "add_bias_linear": False,
        "moe_token_dispatcher_type": "alltoall",
        "moe_router_load_balancing_type": "none",
    },
}


class Makers(TorchFunctionMode):
    """Notes after every call of torch which module runs as a new node appears.

    Attributes:
        made: path of the module, by a node's name and sequence number.
    """

    def __init__(self, models: Any) -> None:
        super().__init__()
        self.made: Made = {}
        self._stack = [""]
        for path, module in paths_of(models).items():
            module.register_forward_pre_hook(self._entering(path), prepend=True, with_kwargs=True)
            module.register_forward_hook(self._left, always_call=True)

    def _entering(self, path: str) -> Callable[..., None]:
        def enter(module: Any, args: Any, kwargs: Any) -> None:
            self._note((args, kwargs))  # what the module around it has made
            self._stack.append(path)

        return enter

    def _left(self, module: Any, args: Any, output: Any) -> None:
        self._note(output)
        self._stack.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._note(result)
        return result

    def _note(self, result: Any) -> None:
        with torch._C.DisableTorchFunction():
            module, running = self._stack[-1], torch._C._current_autograd_node()
            if not module and running is not None:  # computed again, by a node of this module
                module = self.made.get((running.name(), running._sequence_nr()), "")
            todo = [each.grad_fn for each in tree_leaves(result) if isinstance(each, torch.Tensor)]
            while todo:
                node = todo.pop()
                if node is None or (node.name(), node._sequence_nr()) in self.made:
                    continue
                self.made[node.name(), node._sequence_nr()] = module
                todo += [after for after, _ in node.next_functions]


def compared(models: Any, run: Callable[[], None]) -> dict[str, Any]:
    """One step, profiled and walked."""
    makers, ranges, session = Makers(models), Ranges(models), Session()
    ranges.attach()
    session.start()
    with Range(STEP), makers:
        run()
    session.stop()
    ranges.detach()
    events = session.events(10_000_000)
    places = Attribution(events)
    counts: Counter[str] = Counter()
    wrong = []
    for index in places.is_node.nonzero()[0].tolist():
        name = events.names[events.name[index]].removeprefix(NODE)
        key = name, int(events.sequence[index])
        if key[1] < 0 or key not in makers.made:
            counts["unknown" if key[1] >= 0 else "unnumbered"] += 1
            continue
        found, truth = places.paths[places.module[index]], makers.made[key]
        counts["right" if found == truth else "wrong"] += 1
        if found != truth:
            wrong.append([name, found, truth])
    parts = Counter(places.label(index) for index in range(len(events)))
    return {**counts, "unmatched": places.unmatched, "parts": dict(parts), "wrongs": wrong[:10]}


def huggingface(words: Sequence[str]) -> dict[str, Any]:
    """A small Qwen3."""
    from tests.profiled_events import tiny_qwen3

    model = tiny_qwen3()
    if "recompute" in words:
        model.gradient_checkpointing_enable({"use_reentrant": "reentrant" in words})
    tokens = torch.arange(16).reshape(1, 16)
    model.train()
    model(input_ids=tokens, labels=tokens).loss.backward()
    return compared(model, lambda: model(input_ids=tokens, labels=tokens).loss.backward())


def megatron(words: Sequence[str], directory: Path, rank: int) -> dict[str, Any]:
    """A small GPT of Megatron-Core, divided as the words say."""
    from flagscale_perf.hosts import rehearsal
    from flagscale_perf.hosts.patching import Patches

    rehearsal.install(Patches())  # Megatron without a GPU
    sys.path += [str(FLAGSCALE), str(FLAGSCALE / "third_party" / "Megatron-LM")]
    patches = rehearsal.host_patches(Patches())
    for name in ("megatron.core.transformer.torch_norm", "megatron.core.transformer.moe.moe_utils"):
        patches[name](importlib.import_module(name))
    from megatron.core import parallel_state
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
    from megatron.core.transformer.transformer_config import TransformerConfig

    tensor = 2 if {"tensor", "sequence"} & set(words) else 1
    experts = 2 if "expert" in words else 1
    store = f"file://{directory / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=tensor * experts)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=tensor, expert_model_parallel_size=experts
    )
    model_parallel_cuda_manual_seed(1)
    config = TransformerConfig(
        num_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        use_cpu_initialization=True,
        tensor_model_parallel_size=tensor,
        sequence_parallel="sequence" in words,
        **{name: value for word in words for name, value in GIVEN.get(word, {}).items()},
    )
    layer = get_gpt_layer_local_spec(num_experts=config.num_moe_experts)
    model = GPTModel(config, layer, vocab_size=128, max_sequence_length=32)
    tokens = torch.arange(32).reshape(1, 32)
    mask = torch.ones(1, 1, 32, 32).tril() < 0.5

    def run() -> None:
        model(tokens, tokens.clone(), mask, labels=tokens).mean().backward()

    run()
    found = compared(model, run)
    torch.distributed.destroy_process_group()
    return found


def main() -> None:
    """As a process."""
    torch.set_num_threads(1)
    directory, rank, host, *words = sys.argv[1:]
    found = huggingface(words) if host == "huggingface" else megatron(words, Path(directory), int(rank))
    (Path(directory) / f"rank{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
