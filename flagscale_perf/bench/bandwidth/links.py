"""The cards of a machine as NVIDIA's driver knows them: their links, their peak rates, and who uses them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NO_DRIVER = "no NVIDIA driver"
BUSY_PERCENT = 5  # of a card's time: above this, another job is running
MOST_PROCESSES = 8
P2P_READ = 0  # nvmlGpuP2PCapsIndex_t of nvml.h; nvidia-ml-py has a tuple under its name
# GB/s of a PCIe lane, one way, net of line coding, by generation.
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# Common ancestor of two cards, as nvidia-smi's matrix calls it.
ANCESTORS = {0: "same card", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}


@dataclass(frozen=True)
class Process:
    """A process that uses a card.

    Attributes:
        pid: of it.
        name: as the driver tells it; "" where it does not.
        memory_bytes: that it has on the card.
    """

    pid: int
    name: str
    memory_bytes: int | None

    @property
    def words(self) -> str:
        """For example `pid 12 python (3.1 GB)`."""
        memory = "" if self.memory_bytes is None else f" ({self.memory_bytes / 1e9:.1f} GB)"
        return f"pid {self.pid} {self.name}".rstrip() + memory


@dataclass(frozen=True)
class Card:
    """One card. None for what the driver does not report.

    Attributes:
        index, name, uuid: of the driver.
        links, link_mb_per_s: NVLinks that are up, and what each carries one way.
        pcie_generation, pcie_width: as negotiated now.
        memory_mhz, memory_bits: the memory's highest clock and its width.
        sm_mhz, power_mw, busy_percent: now.
        processes: that compute on it.
        peers: how many links lead to what: "GPU 1", "NVSwitch", "CPU".
    """

    index: int
    name: str | None
    uuid: str | None
    links: int | None
    link_mb_per_s: int | None
    pcie_generation: int | None
    pcie_width: int | None
    memory_mhz: int | None
    memory_bits: int | None
    sm_mhz: int | None
    power_mw: int | None
    busy_percent: int | None
    processes: tuple[Process, ...] = ()
    peers: dict[str, int] = field(default_factory=dict)

    @property
    def ceilings(self) -> dict[str, float]:
        """GB/s where known: "nvlink" and "pcie" one way, "memory" read and written."""
        found = {}
        if self.links and self.link_mb_per_s:
            found["nvlink"] = self.links * self.link_mb_per_s / 1e3
        if self.pcie_width and self.pcie_generation in LANE_GB_PER_S:
            found["pcie"] = self.pcie_width * LANE_GB_PER_S[self.pcie_generation]
        if self.memory_mhz and self.memory_bits:
            found["memory"] = 2 * self.memory_mhz * 1e6 * self.memory_bits / 8 / 1e9  # two transfers a clock
        return found

    @property
    def source(self) -> dict[str, str]:
        """How each ceiling was computed."""
        return {
            "nvlink": f"{self.links} links of {(self.link_mb_per_s or 0) / 1e3:g} GB/s, the line's rate",
            "pcie": f"generation {self.pcie_generation}, {self.pcie_width} lanes",
            "memory": f"{self.memory_mhz} MHz, {self.memory_bits} bits, two transfers a clock",
        }


@dataclass(frozen=True)
class Pair:
    """Two cards.

    Attributes:
        one, other: their indices.
        link: "NV4" for four NVLinks, "NVSwitch", or their common ancestor: "PIX", "PHB", "SYS" ...
        peer_access: what the driver says of reading each other's memory: "ok", or "not supported"; None where
            it does not say.
    """

    one: int
    other: int
    link: str | None
    peer_access: str | None


@dataclass(frozen=True)
class Topology:
    """All cards.

    Attributes:
        cards, pairs: none without a driver.
        why: why there are none; "" where there are.
    """

    cards: tuple[Card, ...] = ()
    pairs: tuple[Pair, ...] = ()
    why: str = ""

    def busy(self, indices: set[int] | None = None) -> str:
        """A process that keeps one of these cards (or any card) busy, as one phrase; "" if none does."""
        said = []
        for card in self.cards:
            if (indices is None or card.index in indices) and (card.busy_percent or 0) > BUSY_PERCENT:
                who = ", ".join(one.words for one in card.processes) or "a process that is not shown here"
                said.append(f"GPU {card.index} is busy ({card.busy_percent} %) with {who}")
        return "; ".join(said)


def read_topology() -> Topology:
    """Asks the driver; never raises."""
    try:
        import pynvml
    except ImportError:
        return Topology(why="nvidia-ml-py is not installed")
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return Topology(why=NO_DRIVER)
    except nvml.NVMLError as error:
        return Topology(why=f"the NVIDIA driver refuses: {error}")
    try:
        return _read(nvml)
    except nvml.NVMLError as error:
        return Topology(why=f"the NVIDIA driver refuses: {error}")
    finally:
        nvml.nvmlShutdown()


def _read(nvml: Any) -> Topology:
    ask = _Asker(nvml)
    handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    places = {
        _place(info): index
        for index, handle in enumerate(handles)
        if (info := ask.get(nvml.nvmlDeviceGetPciInfo, handle)) is not None
    }
    cards = tuple(_card(ask, index, handle, places) for index, handle in enumerate(handles))
    pairs = tuple(
        _pair(ask, (cards[one], cards[other]), (handles[one], handles[other]))
        for one in range(len(handles))
        for other in range(one + 1, len(handles))
    )
    return Topology(cards, pairs, "" if cards else "the NVIDIA driver has no card")


class _Asker:
    """Queries the driver; None for what it refuses."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml

    def get(self, query: Callable[..., Any], *args: Any) -> Any:
        try:
            return query(*args)
        except self.nvml.NVMLError:
            return None

    def text(self, query: Callable[..., Any], *args: Any) -> str | None:
        found = self.get(query, *args)
        return found.decode(errors="replace") if isinstance(found, bytes) else found

    def field(self, handle: Any, name: int) -> int | None:
        values = self.get(self.nvml.nvmlDeviceGetFieldValues, handle, [name])
        if values is None or values[0].nvmlReturn != self.nvml.NVML_SUCCESS:
            return None
        return int(values[0].value.uiVal)


def _card(ask: _Asker, index: int, handle: Any, places: dict[tuple[int, int, int], int]) -> Card:
    nvml = ask.nvml
    peers = _peers(ask, handle, places)
    usage = ask.get(nvml.nvmlDeviceGetUtilizationRates, handle)
    return Card(
        index=index,
        name=ask.text(nvml.nvmlDeviceGetName, handle),
        uuid=ask.text(nvml.nvmlDeviceGetUUID, handle),
        links=None if peers is None else sum(peers.values()),
        link_mb_per_s=ask.field(handle, nvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON),
        pcie_generation=ask.get(nvml.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        pcie_width=ask.get(nvml.nvmlDeviceGetCurrPcieLinkWidth, handle),
        memory_mhz=ask.get(nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_MEM),
        memory_bits=ask.get(nvml.nvmlDeviceGetMemoryBusWidth, handle),
        sm_mhz=ask.get(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        power_mw=ask.get(nvml.nvmlDeviceGetPowerUsage, handle),
        busy_percent=None if usage is None else int(usage.gpu),
        processes=_processes(ask, handle),
        peers=peers or {},
    )


def _peers(ask: _Asker, handle: Any, places: dict[tuple[int, int, int], int]) -> dict[str, int] | None:
    """The cards and switches that active links lead to; None if the driver knows no links of the card."""
    nvml, found, known = ask.nvml, dict[str, int](), False
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        is_up = ask.get(nvml.nvmlDeviceGetNvLinkState, handle, link)
        known = known or is_up is not None
        if is_up:
            name = _peer(ask, handle, link, places)
            found[name] = found.get(name, 0) + 1
    return found if known else None


def _peer(ask: _Asker, handle: Any, link: int, places: dict[tuple[int, int, int], int]) -> str:
    nvml = ask.nvml
    info = ask.get(nvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
    index = None if info is None else places.get(_place(info))
    if index is not None:
        return f"GPU {index}"
    kind = ask.get(nvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
    names = {
        nvml.NVML_NVLINK_DEVICE_TYPE_GPU: "another GPU",
        nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH: "NVSwitch",
        nvml.NVML_NVLINK_DEVICE_TYPE_IBMNPU: "CPU",
    }
    return names.get(kind, "unknown")


def _place(info: Any) -> tuple[int, int, int]:
    return info.domain, info.bus, info.device


def _processes(ask: _Asker, handle: Any) -> tuple[Process, ...]:
    found = ask.get(ask.nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return tuple(
        Process(one.pid, ask.text(ask.nvml.nvmlSystemGetProcessName, one.pid) or "", one.usedGpuMemory)
        for one in found[:MOST_PROCESSES]
    )


def _pair(ask: _Asker, cards: tuple[Card, Card], handles: tuple[Any, Any]) -> Pair:
    one, other = cards
    direct = one.peers.get(f"GPU {other.index}", 0)
    if direct:
        link: str | None = f"NV{direct}"
    elif "NVSwitch" in one.peers and "NVSwitch" in other.peers:
        link = "NVSwitch"
    else:
        link = ANCESTORS.get(ask.get(ask.nvml.nvmlDeviceGetTopologyCommonAncestor, *handles))
    status = ask.get(ask.nvml.nvmlDeviceGetP2PStatus, *handles, P2P_READ)
    access = None if status is None else "ok" if status == ask.nvml.NVML_P2P_STATUS_OK else "not supported"
    return Pair(one.index, other.index, link, access)
