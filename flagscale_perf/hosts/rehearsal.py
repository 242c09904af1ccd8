"""Rehearsal: train on the CPU with a script that only knows `torch.cuda`.

Every call that would reach a GPU lands on the CPU instead, so that a cluster's configuration can be tried on
a laptop. It is a rehearsal, not an emulation: one process is one CPU "device", streams and events are the
program order, memory figures of the device are 0, and kernels that exist only for a GPU (Transformer Engine,
Apex, flash attention) stay out.
"""

from __future__ import annotations

import atexit
import contextlib
import copy
import functools
import logging
import sys
import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

from flagscale_perf.hosts.patching import Patches

FACTORIES = (
    *("arange", "as_tensor", "empty", "empty_like", "empty_strided", "eye", "full", "full_like"),
    *("linspace", "logspace", "ones", "ones_like", "rand", "rand_like", "randint", "randint_like", "randn"),
    *("randn_like", "randperm", "tensor", "zeros", "zeros_like"),
)
LEGACY_TYPES = ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]

# What only works on a GPU, as parsed arguments: attribute -> value on the CPU.
FORCED_ARGS: dict[str, Any] = {
    "distributed_backend": "gloo",
    "transformer_impl": "local",
    "use_cpu_initialization": True,
    "gradient_accumulation_fusion": False,
    "masked_softmax_fusion": False,
    "bias_gelu_fusion": False,
    "bias_swiglu_fusion": False,
    "bias_dropout_fusion": False,
    "apply_rope_fusion": False,
    "no_persist_layer_norm": True,
    "use_flash_attn": False,
    "moe_grouped_gemm": False,
    "moe_permute_fusion": False,
    "cross_entropy_loss_fusion": False,
    "tp_comm_overlap": False,
    "fp8": None,
}

_GLOO_S = 0.2


class CpuStream:
    """A stream whose work is done when the call returns, so that nothing ever has to be waited for."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Any) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """An event is always done."""
        return True

    def record_event(self, event: Any = None) -> Any:
        """Records the given or a new event."""
        event = event or CpuEvent()
        event.record()
        return event

    def __enter__(self) -> CpuStream:
        return self

    def __exit__(self, *_: object) -> None: ...


class CpuEvent:
    """An event that is done as soon as it is recorded."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self._at_s = 0.0

    def record(self, *_: Any) -> None:
        """Takes the time."""
        self._at_s = time.perf_counter()

    def query(self) -> bool:
        """An event is always done."""
        return True

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def wait(self, *_: Any) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end: CpuEvent) -> float:
        """Milliseconds from this event to `end`."""
        return (end._at_s - self._at_s) * 1e3


class CpuProperties:
    """Stands for what `torch.cuda.get_device_properties` returns."""

    name = "CPU"
    major, minor = 9, 0
    total_memory = 1 << 34
    multi_processor_count = 1


def is_due(mode: str) -> bool:
    """Whether a training on this machine rehearses, under that value of --rehearse-on-cpu."""
    if mode != "auto":
        return mode != "never"
    import torch  # a second, which those who never rehearse do not wait for

    return not (torch.cuda.is_available() or torch.accelerator.is_available())


def install(patches: Patches) -> None:
    """Redirects `torch.cuda` and every "cuda" device argument to the CPU. Imports torch."""
    import torch

    _redirect_cuda_module(torch, patches)
    _hide_accelerator(torch, patches)
    _redirect_rng(torch, patches)
    _redirect_tensors(torch, patches)
    atexit.register(_let_gloo_finish)


def _let_gloo_finish() -> None:
    # PyTorch 2.13: a gloo thread that still frees the tensors of its last collective while the interpreter
    # ends aborts the process.
    if is_installed() and sys.modules["torch"].distributed.is_initialized():
        time.sleep(_GLOO_S)


def is_installed() -> bool:
    """Whether `torch.cuda` calls land on the CPU in this process."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.cuda.Stream is CpuStream


def adapt_args(args: Any) -> list[str]:
    """Replaces arguments that only a GPU could serve; returns "name: before -> after" for each change."""
    changed = []
    for name, value in FORCED_ARGS.items():
        before = getattr(args, name, value)
        if before != value:
            setattr(args, name, value)
            changed.append(f"{name}: {before} -> {value}")
    return changed


def host_patches(patches: Patches) -> dict[str, Callable[[ModuleType], None]]:
    """What to replace in each module of the host once it is imported, by the module's name."""

    def fused_kernels(module: ModuleType) -> None:
        patches.set(module, "load", lambda *_: None)

    def tensor_parallel_random(module: ModuleType) -> None:
        import torch

        patches.set(module, "_get_cuda_rng_state", lambda *_, **__: torch.get_rng_state())
        patches.set(module, "_set_cuda_rng_state", lambda state, *_, **__: torch.set_rng_state(state))
        # "CPU RNG state changed within GPU RNG context", four times a step: here the two are one by design.
        patches.set(logging.getLogger(module.__name__), "disabled", True)

    def moe_utils(module: ModuleType) -> None:
        """Supplies a name that the module uses without having imported it, and converts what is on the CPU
        already as what comes there from a GPU.
        """
        # FlagScale 0.8.0 uses the name without Transformer Engine, too
        if not hasattr(module, "te_general_gemm"):
            patches.set(module, "te_general_gemm", None)
        if hasattr(module, "maybe_move_tensor_to_cpu"):

            def moved(tensor: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
                return tensor.numpy() if as_numpy and hasattr(tensor, "numpy") else tensor

            patches.set(module, "maybe_move_tensor_to_cpu", moved)

    return {
        "megatron.core.models.T5.t5_spec": functools.partial(_name_norm, patches),
        "megatron.core.models.bert.bert_layer_specs": functools.partial(_name_layers, patches),
        "megatron.core.transformer.torch_norm": functools.partial(_mark_norms, patches),
        "megatron.legacy.fused_kernels": fused_kernels,
        "megatron.core.tensor_parallel.random": tensor_parallel_random,
        "megatron.core.transformer.moe.moe_utils": moe_utils,
    }


def _name_norm(patches: Patches, module: ModuleType) -> None:
    """T5's layers without Transformer Engine name its norm, too."""
    if not hasattr(module, "TENorm"):
        patches.set(module, "TENorm", module.LNImpl)


def _name_layers(patches: Patches, module: ModuleType) -> None:
    """`pretrain_bert.py` imports the layers of Transformer Engine, also where it uses others."""
    if not getattr(module, "HAVE_TE", True):
        patches.set(module, "bert_layer_with_transformer_engine_spec", None)


def _mark_norms(patches: Patches, module: ModuleType) -> None:
    """Torch's norms refuse sequence parallelism; what Apex's do is to mark what is to be summed."""
    wrapped = module.WrappedTorchNorm.__new__

    def new(cls: Any, config: Any, *args: Any, **kwargs: Any) -> Any:
        given = copy.copy(config)
        given.sequence_parallel = False
        norm = wrapped(cls, given, *args, **kwargs)
        if config.sequence_parallel:
            for parameter in norm.parameters():
                parameter.sequence_parallel = True
        return norm

    patches.set(module.WrappedTorchNorm, "__new__", staticmethod(new))


def _returning(value: Any) -> Callable[..., Any]:
    """A new function each time: torch._dynamo's tables refuse one object under two names."""
    return lambda *_, **__: value


def _redirect_cuda_module(torch: Any, patches: Patches) -> None:
    replacements: dict[str, Any] = {
        "is_available": _returning(True),
        "is_initialized": _returning(False),
        "device_count": _returning(1),
        "current_device": _returning("cpu"),
        "get_device_name": _returning(CpuProperties.name),
        "get_device_capability": _returning((CpuProperties.major, CpuProperties.minor)),
        "get_device_properties": _returning(CpuProperties()),
        "is_current_stream_capturing": _returning(False),
        "memory_stats": _returning({}),
        "reset_peak_memory_stats": _returning(None),
        "Stream": CpuStream,
        "Event": CpuEvent,
        "stream": lambda *_: contextlib.nullcontext(),
        "current_stream": lambda *_: CpuStream(),
        "default_stream": lambda *_: CpuStream(),
    }
    for name in ("set_device", "set_stream", "synchronize", "empty_cache", "ipc_collect"):
        replacements[name] = _returning(None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        replacements[name] = _returning(0)
    for prefix in LEGACY_TYPES:
        replacements[f"{prefix}Tensor"] = getattr(torch, f"{prefix}Tensor")
    for name, value in replacements.items():
        patches.set(torch.cuda, name, value)


def _hide_accelerator(torch: Any, patches: Patches) -> None:
    """`torch.accelerator` answers as in a build for the CPU.

    A CUDA build would take the stand-ins of `torch.cuda` for a device and start the driver, for example to
    pin the memory of a DataLoader. Without a device there is nothing to pin for: a tensor is as it is.
    """
    patches.set(torch.accelerator, "current_accelerator", _returning(None))
    patches.set(torch.Tensor, "pin_memory", lambda self, *_, **__: self)


def _redirect_rng(torch: Any, patches: Patches) -> None:
    import torch.cuda.random as cuda_random

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))

    for module in (torch.cuda, cuda_random):
        patches.set(module, "get_rng_state", lambda *_, **__: torch.get_rng_state())
        patches.set(module, "set_rng_state", lambda state, *_, **__: torch.set_rng_state(state))
        patches.set(module, "manual_seed", seed)
        patches.set(module, "manual_seed_all", seed)


def _redirect_tensors(torch: Any, patches: Patches) -> None:
    cpu = torch.device("cpu")

    def on_cpu(device: Any) -> Any:
        is_index = isinstance(device, int) and not isinstance(device, bool)
        is_cuda = isinstance(device, str | torch.device) and str(device).startswith("cuda")
        return cpu if is_index or is_cuda else device

    def to_arg(arg: Any) -> Any:
        return on_cpu(arg) if isinstance(arg, str | torch.device) else arg

    for name in FACTORIES:
        patches.set(torch, name, _with_device(getattr(torch, name), on_cpu))
    patches.set(torch.Tensor, "to", _with_device(torch.Tensor.to, on_cpu, to_arg))
    patches.set(torch.Tensor, "type", _cuda_type_name(torch.Tensor.type))
    patches.set(torch.Tensor, "cuda", lambda self, *_, **__: self)
    patches.set(torch.nn.Module, "cuda", lambda self, *_, **__: self)


def _with_device(
    original: Callable[..., Any], on_cpu: Callable[[Any], Any], positional: Callable[[Any], Any] | None = None
) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("pin_memory", None)
        if "device" in kwargs:
            kwargs["device"] = on_cpu(kwargs["device"])
        if positional is not None:
            args = tuple(positional(arg) for arg in args)
        return original(*args, **kwargs)

    return call


def _cuda_type_name(original: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron compares `tensor.type()` with the names of CUDA tensors."""

    @functools.wraps(original)
    def type_(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        asked_for_name = isinstance(result, str) and not args and not kwargs
        return result.replace("torch.", "torch.cuda.", 1) if asked_for_name else result

    return type_
