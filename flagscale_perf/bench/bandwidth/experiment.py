"""`flagscale-perf bench bandwidth`: its options, checked, and the plan that follows from them."""

from __future__ import annotations

import importlib.util
import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from flagscale_perf.bench.bandwidth import ranks
from flagscale_perf.bench.bandwidth.job import GB, KB, MB, Job, Measured
from flagscale_perf.bench.bandwidth.links import Topology, read_topology
from flagscale_perf.bench.bandwidth.operations import COLLECTIVES, HOST_DEVICE
from flagscale_perf.bench.bandwidth.rank import measure_joined
from flagscale_perf.bench.experiment import Experiment, Plan, say, whole
from flagscale_perf.bench.ports import free_port
from flagscale_perf.bench.recording import Clock, Part
from flagscale_perf.device.roofs import CACHES, copy_bytes, last_cache_bytes
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

SIZES = tuple(KB << power for power in range(21))  # to 1 GB; the largest one by --max-size
QUICK_SIZES = (KB, 64 * KB, MB, 16 * MB)
MESSAGE_SIZES = tuple(MB << power for power in range(0, 12))  # to 2 GB
QUICK_MESSAGE_SIZES = (64 * KB, MB, 16 * MB)
LOOPS, LOOP_S, QUICK_LOOP_S = 5, 0.1, 0.03
CEILINGS = ("nvlink", "memory", "pcie")
BUSY_SHARE = 0.5  # of the cores
RANKS_PER_CORE, RANK_BYTES = 4, 400 * MB  # of a processor; what a process with torch holds before it measures
BUFFERS = 4  # that a rank may need of one size
_UNITS = {"K": KB, "M": MB, "G": GB}


def add_arguments(parser: ArgumentParser) -> None:
    """Adds the options for ranks, operations and sizes."""
    parser.add_argument("--ranks", type=whole, metavar="N", help="processes (default: one a GPU; 2 without)")
    parser.add_argument("--backend", choices=("nccl", "gloo"), help="default: nccl with GPUs, else gloo")
    parser.add_argument(
        "--operations",
        type=_operations,
        metavar="LIST",
        default=tuple(COLLECTIVES),
        help=f"collectives, by commas (default: all of {', '.join(COLLECTIVES)})",
    )
    parser.add_argument(
        "--max-size",
        type=size_of,
        metavar="SIZE",
        help="largest message, as 64M or 2G (default: as memory allows)",
    )
    parser.add_argument(
        "--even-if-busy",
        action="store_true",
        help="measure even if a GPU is in use or there are more ranks than this machine has room for",
    )
    parser.add_argument(
        "--joined", action="store_true", help="run as a rank under torchrun, on one node or several"
    )


def prepare(args: Namespace) -> Plan:
    """Raises PerfError for settings that cannot be measured."""
    job, settings = job_of(args)
    topology = read_topology()
    if job.device == "cuda" and (busy := topology.busy(visible())) and not args.even_if_busy:
        raise PerfError(f"{busy}; the figures would be those of both: end it first, or give --even-if-busy")
    port = free_port()

    def measure(part: Part) -> None:
        def put(point: Measured) -> None:
            part.point("time", "s", point.case, point.samples, Clock(point.start_ns, point.dur_ns))

        put_ceilings(part, topology)
        say(f"bandwidth: {job.planned} points with {job.ranks} ranks over {job.backend} ...")
        if args.joined:
            measure_joined(job, put)
        else:
            for point in ranks.run(job, port):
                put(point)
        for name in HOST_DEVICE if job.device == "cpu" else ():
            part.value("time", "s", {"op": name}, None, "this machine has no GPU that torch can use")

    return Plan(job.planned, measure, settings | {"topology": asdict(topology)}, _follow(args.joined))


def _follow(is_joined: bool) -> Callable[[], None] | None:
    """The work of a rank that torchrun has started beside the first one; None for the first, which writes."""
    if not is_joined or os.environ["RANK"] == "0":
        return None
    return lambda: measure_joined(None, lambda point: None)


def put_ceilings(part: Part, topology: Topology) -> None:
    """Writes what each card can do at best, by its driver, or why that is unknown."""
    for card in topology.cards:
        for of, value in card.ceilings.items():
            part.value("ceiling", "GB/s", {"of": of, "gpu": card.index}, value, card.source[of])
    known = {of for card in topology.cards for of in card.ceilings}
    for of in CEILINGS:
        if of not in known:
            part.value(
                "ceiling", "GB/s", {"of": of}, None, topology.why or f"the driver does not report {of}"
            )


def visible() -> set[int] | None:
    """Cards that torch is going to use; None for all of them, or if they are not given as numbers."""
    words = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return {int(word) for word in words} if all(word.strip().isdecimal() for word in words) else None


def job_of(args: Namespace) -> tuple[Job, dict[str, Any]]:
    """The measurements to make, and remarks on how they were chosen. Raises PerfError."""
    if importlib.util.find_spec("torch") is None:
        raise missing("torch", ModuleNotFoundError(name="torch"), "bench bandwidth")
    devices = _devices()
    backend = args.backend or ("nccl" if devices else "gloo")
    is_gpu = backend == "nccl"
    count, local = _ranks(args, devices if is_gpu else 2)
    free = free_bytes()
    if is_gpu:
        _check_devices(local, devices)
    elif not (args.joined or args.even_if_busy):
        _check_room(local, free)
    sizes, messages, cut = _sizes(args, free // (2 * BUFFERS * local))
    is_alone = count == 1
    job = Job(
        count,
        backend,
        () if is_alone else args.operations,
        sizes,
        () if is_alone else messages,
        LOOPS,
        QUICK_LOOP_S if args.quick else LOOP_S,
        copy_bytes("cuda") if is_gpu else copy_bytes("cpu") // local,
    )
    settings = {"is_quick": args.quick, "free_bytes": free, "said": _remarks(job.copy_bytes, cut)}
    return job, asdict(job) | settings


def _sizes(args: Namespace, room: int) -> tuple[tuple[int, ...], tuple[int, ...], int | None]:
    """Sizes of collectives, of messages, and the largest message where memory (`room` bytes) cuts them."""
    most = min(args.max_size or 2 * GB, room)
    wanted = (QUICK_SIZES, QUICK_MESSAGE_SIZES) if args.quick else (SIZES, MESSAGE_SIZES)
    sizes, messages = (tuple(size for size in each if size <= most) or (most,) for each in wanted)
    return sizes, messages, messages[-1] if most < wanted[1][-1] and args.max_size is None else None


def _remarks(copied: int, cut: int | None) -> list[str]:
    """`cut`: bytes of the largest messages, where memory has shortened the list."""
    said, cores, load = [], len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if load > BUSY_SHARE * cores:
        said.append(
            f"other work keeps this machine busy (load {load:.1f} on {cores} cores): figures are"
            " those of both"
        )
    if cut is not None:
        said.append(f"the largest messages have {cut:,} bytes: larger ones do not fit into the free memory")
    if copied < CACHES * last_cache_bytes():
        said.append(
            f"a copy is of {copied:,} bytes, less than {CACHES} times the last cache: in part"
            " it measures that"
        )
    return said


def _check_devices(ranks: int, devices: int) -> None:
    """Raises PerfError for more ranks than GPUs."""
    if not devices:
        raise PerfError("--backend nccl: there is no GPU that torch can use; leave it out: gloo needs none")
    if ranks > devices:
        raise PerfError(
            f"--ranks {ranks}: this machine has {devices} GPUs that torch can use; take --ranks {devices}, or"
            " --backend gloo for the processor"
        )


def _ranks(args: Namespace, usual: int) -> tuple[int, int]:
    """How many ranks there are in all, and on this machine. Raises PerfError."""
    if not args.joined:
        count = args.ranks or usual
        return count, count
    try:
        count = int(os.environ["WORLD_SIZE"])
        return count, int(os.environ.get("LOCAL_WORLD_SIZE", count))
    except (KeyError, ValueError):
        raise PerfError(
            "--joined: this process is not a rank of torchrun (WORLD_SIZE is not set); write torchrun"
            " --nproc_per_node=2 scripts/distributed_benchmark.py, or leave --joined out"
        ) from None


def _check_room(ranks: int, free: int) -> None:
    """Raises PerfError for more ranks than this machine has cores or memory for."""
    cores = len(os.sched_getaffinity(0))
    most = max(2, min(RANKS_PER_CORE * cores, free // RANK_BYTES))
    if ranks > most:
        raise PerfError(
            f"--ranks {ranks}: {cores} cores and {free / GB:.0f} GB of free memory are for {most} at most;"
            f" take --ranks {most}, or --even-if-busy to start them all the same"
        )


def _devices() -> int:
    """GPUs that torch can use; torch is not imported if the driver's files are missing."""
    if not any(os.path.exists(path) for path in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")):
        return 0
    import torch

    return int(torch.cuda.device_count())


def free_bytes() -> int:
    """Available memory, including what the system would release."""
    try:
        with open("/proc/meminfo", encoding="utf-8") as file:
            found = {line.split(":")[0]: line.split()[1] for line in file}
        return int(found["MemAvailable"]) << 10
    except (OSError, KeyError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def size_of(text: str) -> int:
    """Number of bytes for `64M`. Raises ArgumentTypeError."""
    number, unit = (text[:-1], _UNITS[text[-1].upper()]) if text[-1:].upper() in _UNITS else (text, 1)
    if not number.isdecimal() or int(number) * unit < KB:
        raise ArgumentTypeError(f"{text!r} is not a size of 1K or more; write for example 64M or 2G")
    return int(number) * unit


def _operations(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    wrong = [name for name in names if name not in COLLECTIVES]
    if wrong:
        raise ArgumentTypeError(f"{wrong[0]!r} is none of {', '.join(COLLECTIVES)}")
    return names


EXPERIMENT = Experiment(add_arguments, prepare)
