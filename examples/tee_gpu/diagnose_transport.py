"""Where the time of calls goes: what each transport and codec costs on this machine, who listens where, and
what all that means for your own traffic.

python diagnose_transport.py                                  measure, and look at the endpoint
python diagnose_transport.py --log zmq_performance.log        ... for these calls (or those of a run file)
python diagnose_transport.py --calls 98 --bytes-sent 3328MiB --bytes-received 3657MiB --seconds 32.6
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path

import needed  # noqa: F401
from diagnosis.calibration import calibrate
from diagnosis.listeners import look_at, zeromq_servers
from diagnosis.observed import Load, Observed
from diagnosis.verdict import Diagnosis, Places
from split_inference.options import DEFAULT_IPC_PATH, run_program

from flagscale_perf.report.text import render
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.units import for_stdout

VARIABLES = ("LLAMA_IPC_PATH", "LLAMA_DTYPE")
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def main(argv: list[str] | None = None) -> int:
    """Measures for some seconds and prints."""
    options = _parser().parse_args(argv)
    try:
        if options.rounds < 1:
            raise PerfError(f"--rounds {options.rounds}: write how many there are to be, 1 or more")
        observed = _observed(options)
        places = _places(options, observed)
        here = calibrate(observed.loads if observed else (), options.rounds)
        made = Diagnosis(here, observed, places)
    except PerfError as error:
        print(f"diagnose_transport: {error}", file=sys.stderr)
        return 2
    text = dump(made.as_dict()) + "\n" if options.json else render(made.report())
    print(for_stdout(text), end="")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--endpoint", help="the client's (default: LLAMA_IPC_PATH, or the usual one)")
    parser.add_argument("--log", type=Path, metavar="FILE", help="zmq_performance.log, or a run file")
    parser.add_argument("--calls", type=int, metavar="N", help="of your traffic")
    parser.add_argument(
        "--bytes-sent", type=size, default=0, metavar="BYTES", help="of all calls; 3328MiB, 2GB"
    )
    parser.add_argument("--bytes-received", type=size, default=0, metavar="BYTES", help="of all calls")
    parser.add_argument("--seconds", type=float, metavar="S", help="that these calls took")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of measurement (default: 3)")
    parser.add_argument("--json", action="store_true", help="for programs")
    return parser


def size(text: str) -> int:
    """`3328MiB`, `2GB`, `4096`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMG]i?B|B|)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes; write 3328MiB, 2GB or 4096")
    return round(float(match[1]) * _UNITS[match[2]])


def _observed(options: argparse.Namespace) -> Observed | None:
    """Whose calls they are; None where the log does not say."""
    if options.log is not None:
        return Observed.of_session(options.log)
    if options.calls is not None:
        if options.calls < 1:
            raise PerfError(f"--calls {options.calls}: write how many calls there are, 1 or more")
        loads = (Load(options.calls, options.bytes_sent, options.bytes_received),)
        return Observed(loads, "the command line; calls are taken to be alike", options.seconds)
    return None


def _places(options: argparse.Namespace, observed: Observed | None) -> Places:
    environment = {name: os.environ.get(name, "") for name in VARIABLES}
    endpoint, told_by = options.endpoint, "--endpoint"
    if endpoint is None and environment["LLAMA_IPC_PATH"]:
        endpoint, told_by = environment["LLAMA_IPC_PATH"], "LLAMA_IPC_PATH"
    elif endpoint is None:
        endpoint, told_by = DEFAULT_IPC_PATH, "default"
    logged = observed.transport if observed else None
    return Places(look_at(endpoint), told_by, zeromq_servers(), environment, logged)


if __name__ == "__main__":
    run_program(main)
