"""`flagscale-perf doctor`: which host and hook points are there, and what is missing."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from dataclasses import asdict

from flagscale_perf import __version__
from flagscale_perf.cli.base import Command
from flagscale_perf.device.nvml import tensor_counters
from flagscale_perf.device.peaks import find_peak
from flagscale_perf.device.probe import CudaProbe
from flagscale_perf.hosts import autostart
from flagscale_perf.hosts.doctor import OWN_LOOP, Host, find_hosts
from flagscale_perf.hosts.hook_points import HookPoint
from flagscale_perf.hosts.transfer_queue.doctor import find_queue
from flagscale_perf.launcher.flagscale_root import HOW_TO_INSTALL
from flagscale_perf.spine import hot
from flagscale_perf.spine.language import said, say
from flagscale_perf.spine.packages import PARTS
from flagscale_perf.spine.units import filled

WIDTH = 12
CORE = "megatron"  # the module of a part
LENT = " (a rehearsal on the CPU stands in for it)"
PROFILING = "flagscale_perf.hosts.profiling.doctor"  # by name: it can be left out
IN_C = "the monitor's part of each step; without it, up to half as much again"
HOW_TO_BUILD = f"install again with a C compiler and Python's headers, and without {hot.PLAIN_VARIABLE}"


class DoctorCommand(Command):
    """Prints what is there, what is missing, and what that costs."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Adds the choice of the output."""
        about = (
            "print the hosts as one JSON object: their commits, hook points, and what keeps them from working"
        )
        parser.add_argument("--json", action="store_true", help=about)

    def run(self, args: Namespace) -> int:
        """Returns 0 if a host is found on which the monitor works, or a queue that can be traced, else 1."""
        if args.json:
            return _print_json(find_hosts())
        _line("monitor", f"flagscale_perf {__version__}, Python {sys.version.split()[0]} ({sys.prefix})")
        _line(
            "activation",
            f"on ({autostart.pth_path()})"
            if autostart.is_enabled()
            else "off; flagscale-perf enable switches it on",
        )
        _print_extension()
        for line in _device_lines():
            _line("device", line)
        hosts = find_hosts()
        _print_parts(hosts)
        for host in hosts:
            _print_host(host)
        if not hosts:
            _line("host", f"none found; {HOW_TO_INSTALL}, or put Megatron-LM on PYTHONPATH")
        can_trace = _print_queue()
        _print_profiling()
        return 0 if can_trace or any(host.works for host in hosts) else 1


def _print_json(hosts: Sequence[Host]) -> int:
    found = [{**asdict(host), "source": str(host.source), "works": host.works} for host in hosts]
    print(
        json.dumps(
            {"flagscale_perf": __version__, "python": sys.version.split()[0], "hosts": found}, indent=2
        )
    )
    return 0 if any(host.works for host in hosts) else 1


def _print_extension() -> None:
    _line("extension", filled(say("NOT IN USE" if hot.load() is None else "in use"), 12) + said(IN_C))
    if hot.load() is None:
        _line("", HOW_TO_BUILD)


def _print_parts(hosts: Sequence[Host]) -> None:
    """The optional parts: a line each, and below one that is missing what to type. A host brings its
    Megatron-Core along: then it is said where that is.
    """
    width = max(len(part.name) for part in PARTS) + 2
    core = next((host for host in hosts if host.loop == OWN_LOOP), None)
    for number, part in enumerate(PARTS):
        version, place = part.version, ""
        if version is None and core is not None and part.module == CORE:
            version, place = core.name.split()[-1], str(core.source.parents[4])
        _line(
            "" if number else "parts",
            f"{part.name:{width}}{filled(version or say('MISSING'), 12)}{said(part.purpose)}",
        )
        if version is None:
            _line("", f"{'':{width}}{part.line}")
        elif place:
            _line("", f"{'':{width}}{say('found in {0}: nothing to install', place)}")


def _print_host(host: Host) -> None:
    print()
    _line("host", host.name)
    _line("loop", f"{host.loop} ({host.source})")
    for lack in host.lacks:
        _line("", say("CANNOT BE IMPORTED: {0}", said(lack.text)) + (say(LENT) if lack.is_lent else ""))
    _print_hooks(host.points)
    for remark in host.remarks:
        _line("", remark)


def _print_hooks(hooks: Sequence[HookPoint]) -> None:
    for hook in hooks:
        missed = "" if hook.found else say(": without it no {0}", said(hook.cost))
        _line("", f"{say('found  ' if hook.found else 'MISSING')}  {hook.name}{missed}")


def _print_queue() -> bool:
    """Prints what can be traced of TransferQueue, if it is installed; returns whether anything can."""
    queue = find_queue(os.environ, autostart.is_enabled())
    if queue is None:
        return False
    print()
    _line("queue", ", ".join(f"{name} {version}" for name, version in queue.versions.items()))
    _print_hooks(queue.hooks)
    for remark in queue.remarks:
        _line("", remark)
    return queue.works


def _print_profiling() -> None:
    try:
        profiling = importlib.import_module(PROFILING)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("flagscale_perf."):
            raise
        return
    for number, line in enumerate(profiling.profiling_lines(os.environ)):
        if not number:
            print()
        _line("" if number else "profile", line)


def _device_lines() -> list[str]:
    if importlib.util.find_spec("torch") is None:
        return ["torch is not installed: reading and reporting work, training does not"]
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: one of its libraries
        return [
            f"torch is installed but cannot be imported ({error}): reading and reporting work, training does"
            " not"
        ]
    if not torch.cuda.is_available():
        return [
            f"no CUDA device (torch {torch.__version__}): training rehearses on the CPU, MFU is not known"
        ]
    name = torch.cuda.get_device_name()
    peak = find_peak(name, "bf16")
    rate = f"bf16 peak {peak.flop_per_s / 1e12:g} TFLOP/s ({peak.source})" if peak.flop_per_s else peak.source
    uuid = CudaProbe(torch.cuda).uuid
    counted = [] if uuid is None else [tensor_counters(uuid)]
    return [f"{torch.cuda.device_count()} x {name}, torch {torch.__version__}", rate, *counted]


def _line(label: str, text: str) -> None:
    print(filled(say(label), WIDTH) + said(text))
