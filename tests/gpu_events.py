"""Raw events of a GPU as Kineto has them, written by hand to its schema: calls of CUDA with the correlation
id of what they launch, kernels on streams that name the operator that launched them, and ranges that are
shown again on the device.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

CPU, CUDA = torch._C._autograd.DeviceType.CPU, torch._C._autograd.DeviceType.CUDA
COMPUTE, NCCL = 7, 20  # streams


@dataclass(frozen=True)
class Raw:
    """One event; times in ns, and each method of Kineto's own that is read."""

    _name: str
    _start: int
    _end: int
    _activity: str = "cpu_op"
    _id: int = 0
    _linked: int = 0
    _stream: int = 0
    _scope: int = 0
    _metadata: str = ""

    def name(self) -> str:
        return self._name

    def start_ns(self) -> int:
        return self._start

    def duration_ns(self) -> int:
        return self._end - self._start

    def device_type(self) -> object:
        return CUDA if self._stream else CPU

    def activity_type(self) -> str:
        return self._activity

    def correlation_id(self) -> int:
        return self._id

    def linked_correlation_id(self) -> int:
        return self._linked

    def device_resource_id(self) -> int:
        return self._stream

    def start_thread_id(self) -> int:
        return 1

    def fwd_thread_id(self) -> int:
        return 0

    def sequence_nr(self) -> int:
        return -1

    def scope(self) -> int:
        return self._scope

    def is_async(self) -> bool:
        return False

    def is_user_annotation(self) -> bool:
        return self._activity == "user_annotation"

    def metadata_json(self) -> str:
        return self._metadata


def kernel(name: str, start: int, end: int, launched_by: int, stream: int = COMPUTE) -> Raw:
    """On a stream."""
    return Raw(name, start, end, "kernel", _id=1000 + start, _linked=launched_by, _stream=stream)
