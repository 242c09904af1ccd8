"""Arrays as torch tensors and back, without a copy on the CPU."""

from __future__ import annotations

import warnings

import torch

from tensor_rpc.arrays import Array, DType
from tensor_rpc.errors import RpcError

TORCH = {
    DType.FLOAT32: torch.float32,
    DType.FLOAT16: torch.float16,
    DType.BFLOAT16: torch.bfloat16,
    DType.FLOAT64: torch.float64,
    DType.INT64: torch.int64,
    DType.INT32: torch.int32,
    DType.UINT8: torch.uint8,
    DType.BOOL: torch.bool,
}
OURS = {theirs: ours for ours, theirs in TORCH.items()}


def dtype_of(dtype: torch.dtype) -> DType:
    """Raises `RpcError` for a type that calls do not carry."""
    try:
        return OURS[dtype]
    except KeyError:
        known = ", ".join(sorted(str(each) for each in OURS))
        raise RpcError(f"calls carry no {dtype}; they carry {known}") from None


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's own memory if it is contiguous and on the CPU; otherwise a copy."""
    dtype = dtype_of(tensor.dtype)
    # Flat first: one with a last dimension of 1 counts as contiguous with any stride there, and cannot be
    # viewed as another type then.
    flat = tensor.detach().cpu().reshape(-1).contiguous()
    return Array(dtype, tuple(tensor.shape), memoryview(flat.view(torch.uint8).numpy()))


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor on the array's own memory, valid as long as that is. It must not be written to if that is
    read-only.
    """
    dtype = TORCH[array.dtype]
    if not len(array.data):
        return torch.empty(array.shape, dtype=dtype)
    return _from_buffer(array.data, dtype).reshape(array.shape)


def _from_buffer(data: memoryview, dtype: torch.dtype) -> torch.Tensor:
    return torch.frombuffer(data, dtype=dtype)


def _warn_once() -> None:
    """Suppresses torch's warning about read-only memory, which replies in shared memory have on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _from_buffer(memoryview(b"\0"), torch.uint8)


_warn_once()
