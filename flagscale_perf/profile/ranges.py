"""A profiler range around each module's forward pass, by hooks that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch import nn

from flagscale_perf.profile.kineto import Range

MODULE = "module "  # begins the name of each range of a module
STEP = "flagscale_perf step"  # the range around a profiled step
_WRAPPERS = ("module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


def paths_of(models: nn.Module | Sequence[nn.Module]) -> dict[str, nn.Module]:
    """The path of each module without what wraps it; the root is named by its class. With several models,
    such as the chunks of a pipeline stage, each path begins with the number of its model. An `nn.Identity` is
    left out: transformers and vLLM have one for each layer of another stage. A layer that knows its number in
    the whole model, as Megatron-Core's do, has that one in its path, as each stage numbers its own modules
    from 0.
    """
    chunks = [models] if isinstance(models, nn.Module) else list(models)
    found: dict[str, nn.Module] = {}
    for number, chunk in enumerate(chunks):
        root, prefix = unwrapped(chunk), f"{number}." if len(chunks) > 1 else ""
        layers: dict[str, str] = {}
        for path, module in root.named_modules():
            if isinstance(module, nn.Identity):
                continue
            whole = _numbered(path, module, layers)
            found[prefix + (_shortened(whole) or type(root).__name__)] = module
    return found


def _numbered(path: str, module: nn.Module, layers: dict[str, str]) -> str:
    """The path with the layers' global numbers, from 0. `layers`: maps enclosing layers' paths to their
    numbered ones; this layer is added to it.
    """
    parent, _, name = path.rpartition(".")
    above = layers.get(parent, parent)
    own = getattr(module, "layer_number", None)
    if name.isdigit() and isinstance(own, int) and own > 0:
        name = str(own - 1)
    layers[path] = f"{above}.{name}" if above else name
    return layers[path]


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside the wrappers of data parallelism, mixed precision or the compiler."""
    while True:
        children = list(model._modules.items())
        if len(children) != 1 or children[0][0] not in _WRAPPERS or children[0][1] is None:
            return model
        model = children[0][1]


def _shortened(path: str) -> str:
    return ".".join(part for part in path.split(".") if part not in _WRAPPERS[1:])


def is_compiled(module: nn.Module) -> bool:
    """Whether the module's own Python does not run: hooks would not be called, or would break its graph."""
    if getattr(module, "_compiled_call_impl", None) is not None:
        return True
    if getattr(module, "do_not_compile", None) is False:  # what vLLM compiles has this attribute
        return True
    return hasattr(module, "_orig_mod") and hasattr(module, "dynamo_ctx")


class Ranges:
    """The hooks of one model or of its chunks.

    Attributes:
        paths: of all modules that can have a range.
        compiled: paths of modules that have none, as they are compiled; what is in them has none either.
    """

    def __init__(self, models: nn.Module | Sequence[nn.Module]) -> None:
        self._modules = paths_of(models)
        chunks = [models] if isinstance(models, nn.Module) else list(models)
        inside = {id(part): module for part, module in _compiled_parts(chunks)}
        self.paths = [path for path, module in self._modules.items() if id(module) not in inside]
        self.compiled = [path for path, module in self._modules.items() if inside.get(id(module)) is module]
        self._handles: list[Any] = []

    def attach(self) -> None:
        """Adds one pair of hooks to each module."""
        for path in self.paths:
            module = self._modules[path]
            before, after = _hooks(MODULE + path)
            self._handles.append(module.register_forward_pre_hook(before, prepend=True))
            # also where the forward pass raises, as a recomputation does that has all it needs
            self._handles.append(module.register_forward_hook(after, always_call=True))

    def detach(self) -> None:
        """Removes all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _compiled_parts(models: Sequence[nn.Module]) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Each module inside a compiled one, mapped to the outermost compiled one, which is included itself."""
    for model in models:
        for module in model.modules():
            if is_compiled(module):
                outer = unwrapped(module)
                for part in module.modules():
                    yield part, outer


def _hooks(name: str) -> tuple[Callable[..., None], Callable[..., None]]:
    """The hooks around one module's forward pass, which may run recursively."""
    open_ranges: list[Any] = []

    def before(module: nn.Module, args: Any) -> None:
        entered = Range(name)
        entered.__enter__()
        open_ranges.append(entered)

    def after(module: nn.Module, args: Any, output: Any) -> None:
        if open_ranges:
            open_ranges.pop().__exit__(None, None, None)

    return before, after
