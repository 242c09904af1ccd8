"""Damages files of runs, of their nodes and beside them until the time is over:
`python -m tests.fuzz [--seconds 300] [--first-seed N]`.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from flagscale_perf.cli import COMMANDS, load_command
from tests.fuzz.exchange import exchange_findings, whole
from tests.fuzz.mutations import corpus, mutated
from tests.fuzz.side_files import damaged, side_findings
from tests.fuzz.side_files import whole as whole_side
from tests.fuzz.target import findings, limit_memory

MEMORY_BYTES = 256 << 20
MAX_FINDINGS = 20
SIDE_EVERY = 5  # files, one of operators' runs


def main() -> int:
    """Prints each finding with its seed, and the count; 1 if there was any."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=300, help="how long")
    parser.add_argument("--files", type=int, default=sys.maxsize, help="at most so many")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="of the first file; the next one has the next number"
    )
    given = parser.parse_args()
    for name in COMMANDS:
        load_command(name)  # what it maps is no memory that a file takes
    limit_memory(MEMORY_BYTES)
    seeds, exchanged, seed, found = corpus(), [whole()], given.first_seed, 0
    until = time.monotonic() + given.seconds
    with tempfile.TemporaryDirectory() as scratch:
        side = whole_side(Path(scratch))
        while time.monotonic() < until and seed - given.first_seed < given.files and found < MAX_FINDINGS:
            in_exchange = exchange_findings(mutated(seed, exchanged), Path(scratch))
            beside = side_findings(damaged(seed, side), Path(scratch)) if seed % SIDE_EVERY == 0 else []
            for finding in [*findings(mutated(seed, seeds), Path(scratch)), *in_exchange, *beside]:
                found += 1
                print(f"seed {seed}: {' '.join(finding.words)}: {finding.what}\n{finding.detail[-3000:]}")
            seed += 1
    print(f"{seed - given.first_seed} damaged files from seed {given.first_seed} on, {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
