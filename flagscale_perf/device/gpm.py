"""How busy a GPU's tensor cores were, by NVML's GPM counters: Hopper and later, without root.

GPM and profilers (Nsight, CUPTI) count with different parts of the GPU, so that both can run at a time.
"""

from __future__ import annotations

from typing import Any

from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns

# The driver renews its counters every 100 ms: two samples nearer than that may hold the same ones.
LEAST_NS = NS_PER_S // 5
_PPM_PER_PERCENT = 10_000


class TensorCounter:
    """The tensor cores of one whole device between two samples; the first call only begins."""

    def __init__(self, nvml: Any, device: Any) -> None:
        """`pynvml` and a device handle of that module. Raises its NVMLError where the device, driver or
        package has no such counters.
        """
        if not nvml.nvmlGpmQueryDeviceSupport(device).isSupportedDevice or _is_divided(nvml, device):
            raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
        self._nvml = nvml
        self._device = device
        self._wanted = nvml.c_nvmlGpmMetricsGet_t(version=nvml.NVML_GPM_METRICS_GET_VERSION, numMetrics=1)
        self._wanted.metrics[0].metricId = nvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
        self._last, self._next = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
        self._last_ns: int | None = None

    def read(self) -> tuple[int, int] | None:
        """Parts per million of the time since the last sample in which the tensor cores were active, all SMs
        together, and that time in nanoseconds. None for the first sample, one too near to the last, and where
        the counter says nothing; then the next one begins anew. Raises NVMLError.
        """
        now_ns, last_ns = monotonic_ns(), self._last_ns
        if last_ns is not None and now_ns - last_ns < LEAST_NS:
            return None
        self._last_ns = None  # what fails below leaves no sample to go on from
        self._nvml.nvmlGpmSampleGet(self._device, self._next)
        self._last, self._next, self._last_ns = self._next, self._last, now_ns
        if last_ns is None:
            return None
        # The structure's pointers are set each time: the two samples take turns.
        self._wanted.sample1, self._wanted.sample2 = self._next, self._last
        metric = self._nvml.nvmlGpmMetricsGet(self._wanted).metrics[0]
        # The call succeeds though this metric fails; NaN is in no range either.
        if metric.nvmlReturn != self._nvml.NVML_SUCCESS or not 0 <= metric.value <= 100:
            return None
        return round(metric.value * _PPM_PER_PERCENT), now_ns - last_ns


def _is_divided(nvml: Any, device: Any) -> bool:
    """Whether it is a MIG slice, or a device that has some: its counters are of all of them together."""
    try:
        return bool(nvml.nvmlDeviceIsMigDeviceHandle(device).value or nvml.nvmlDeviceGetMigMode(device)[0])
    except nvml.NVMLError:  # a device that cannot be divided
        return False
