"""NVIDIA's counters through NVML (nvidia-ml-py). Imports the package only when a device is opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, ClassVar

from flagscale_perf.device.counters import HardwareRecord, NoCountersError, plausible
from flagscale_perf.device.gpm import TensorCounter
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.packages import missing

# Bits of nvmlDeviceGetCurrentClocksEventReasons, nvml.h.
_REASONS = {
    0x1: "idle",
    0x2: "application clocks",
    0x4: "power",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature",
    0x40: "temperature",
    0x80: "power brake",
    0x100: "display",
}
MAX_XIDS = 16  # taken from the driver's queue at a time


class NvmlReader:
    """One GPU, or one MIG slice of it. A query that the driver or the package lacks is tried only once."""

    name: ClassVar[str] = "NVML"

    def __init__(self, nvml: Any, device: Any) -> None:
        """`pynvml` and a device handle of that module; `open` finds both."""
        self._nvml = nvml
        self._device = device
        self._refused: set[str] = set()
        self._links = [
            link
            for link in range(nvml.NVML_NVLINK_MAX_LINKS)
            if self._ask(f"link {link}", self._link_state, link) is not None
        ]
        self._xids = self._ask("xid", self._xid_queue)
        self._tensor = self._ask("tensor", lambda: TensorCounter(nvml, device))

    @classmethod
    def open(cls, device_uuid: str) -> NvmlReader:
        """Finds the device by its uuid. Raises NoCountersError."""
        try:
            import pynvml
        except ImportError as error:
            raise NoCountersError(str(missing("pynvml", error, "reading them")).replace("\n", "; ")) from None
        try:
            pynvml.nvmlInit()
            return cls(pynvml, _find(pynvml, device_uuid))
        except pynvml.NVMLError as error:
            raise NoCountersError(str(error)) from None

    @property
    def counts_tensor_cores(self) -> bool:
        """Whether device, driver and package have the counter."""
        return self._tensor is not None

    def read(self) -> HardwareRecord:
        """About 10 queries and one per link. PCIe throughput is left out, as it takes the driver 40 ms."""
        nvml, device = self._nvml, self._device
        queries: dict[str, Callable[[], int]] = {
            "energy_mj": lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(device),
            "power_mw": lambda: nvml.nvmlDeviceGetPowerUsage(device),
            "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
            "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU),
            "ecc_uncorrected": lambda: nvml.nvmlDeviceGetTotalEccErrors(
                device, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
            "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(device),
            "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(device),
            "pcie_replays": lambda: nvml.nvmlDeviceGetPcieReplayCounter(device),
        }
        at_ns = monotonic_ns()  # just before the energy, which is divided by the time between two readings
        values = {name: self._ask(name, query) for name, query in queries.items()}
        values["xid"] = None if self._xids is None else self._ask("xid", self._last_xid)
        active = [self._ask(f"link {link}", self._link_state, link) for link in self._links]
        values["nvlinks_active"] = None if None in active or not active else sum(filter(None, active))
        tensor = None if self._tensor is None else self._ask("tensor", self._tensor.read)
        tensor_ppm, tensor_ns = tensor or (None, None)
        values["processes"] = None if tensor is None else self._ask("processes", self._processes)
        known = {name: None if value is None else plausible(name, value) for name, value in values.items()}
        return HardwareRecord(
            at_ns=at_ns, throttle=self._throttle(), tensor_ppm=tensor_ppm, tensor_ns=tensor_ns, **known
        )

    def _ask(self, name: str, query: Callable[..., Any], *args: int) -> Any:
        if name in self._refused:
            return None
        try:
            return query(*args)
        except self._nvml.NVMLError as error:
            # Any other error may be temporary: the device is lost, or the driver is busy.
            if isinstance(error, (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound)):
                self._refused.add(name)
        except AttributeError:  # a function or constant that an older package does not have
            self._refused.add(name)
        return None

    def _throttle(self) -> str | None:
        bits = self._ask("throttle", lambda: self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._device))
        if bits is None:
            bits = self._ask(
                "throttle before 535",
                lambda: self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._device),
            )
        return None if bits is None or bits.bit_length() > 32 else ", ".join(sorted(set(_names(bits))))

    def _link_state(self, link: int) -> int:
        return int(self._nvml.nvmlDeviceGetNvLinkState(self._device, link))

    def _xid_queue(self) -> Any:
        queue = self._nvml.nvmlEventSetCreate()
        try:
            self._nvml.nvmlDeviceRegisterEvents(self._device, self._nvml.nvmlEventTypeXidCriticalError, queue)
        except self._nvml.NVMLError:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlEventSetFree(queue)
            raise
        return queue

    def _processes(self) -> int:
        return len(self._nvml.nvmlDeviceGetComputeRunningProcesses(self._device))

    def _last_xid(self) -> int:
        xid = 0
        for _ in range(MAX_XIDS):
            try:
                xid = int(self._nvml.nvmlEventSetWait_v2(self._xids, 0).eventData)
            except self._nvml.NVMLError_Timeout:
                break
        return xid


def tensor_counters(device_uuid: str) -> str:
    """Whether the device counts what its tensor cores do, in one line."""
    try:
        counts = NvmlReader.open(device_uuid).counts_tensor_cores
    except NoCountersError as error:
        return f"MFU by counter: not known, {error}"
    return f"MFU by counter: {'yes' if counts else 'no, that needs Hopper or later, and no MIG slices'}"


def _find(nvml: Any, device_uuid: str) -> Any:
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{device_uuid}")
    except (nvml.NVMLError_NotFound, nvml.NVMLError_InvalidArgument):
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{device_uuid}")


def _names(bits: int) -> Iterator[str]:
    for position in range(bits.bit_length()):
        if bits & 1 << position:
            yield _REASONS.get(1 << position, "other")
