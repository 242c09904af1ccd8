"""Arrays as torch tensors and back, without a copy on the CPU."""

from __future__ import annotations

import warnings

import torch

from flagscale_perf.rpc.dtypes import DType
from tensor_rpc.errors import RpcError
from tensor_rpc.wire import Array

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
    return torch.frombuffer(array.data, dtype=dtype).reshape(array.shape)


with warnings.catch_warnings():
    # torch warns once of memory that is read-only, as that of replies is on purpose: here, unheard.
    warnings.simplefilter("ignore")
    torch.frombuffer(memoryview(b"\0"), dtype=torch.uint8)
