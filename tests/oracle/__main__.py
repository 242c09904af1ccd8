"""The long form of the comparison: `python -m tests.oracle --random 400`, and `--full` for the largest
model.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.oracle.comparison import NEWER_CORE, bundled_core, differences
from tests.oracle.configurations import (
    ENCODERS,
    FULL_SIZE,
    NAMED,
    NEWER,
    SLOW,
    random_configurations,
    random_frozen_and_recomputed,
)
from tests.oracle.hybrid_configurations import HYBRIDS, random_hybrids
from tests.oracle.tower_configurations import DECODERS, TOWERS, random_towers
from tests.processes import warm


def main() -> int:
    """Prints each model whose counts differ from the formulas; 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--random", type=int, default=400, metavar="N", help="random models (default: 400)")
    parser.add_argument(
        "--seed",
        type=int,
        default=time.time_ns() % 1_000_000,
        help="of the random models (default: from the clock)",
    )
    parser.add_argument(
        "--full", action="store_true", help="DeepSeek-V3 with its 671 B parameters, too (minutes)"
    )
    args = parser.parse_args()
    runs = [
        (NAMED | ENCODERS, bundled_core()),
        (FULL_SIZE, bundled_core()),
        (random_configurations(args.random, args.seed), bundled_core()),
        (random_frozen_and_recomputed(args.random // 4, args.seed), bundled_core()),
        (DECODERS | TOWERS | HYBRIDS, []),
        (random_towers(args.random, args.seed), []),
        (random_hybrids(args.random, args.seed), []),
        (NEWER | NAMED, [NEWER_CORE]),
    ]
    runs += [(SLOW, bundled_core())] if args.full else []
    wrong = 0
    warm.address()  # one server for all of them
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        all_found = pool.map(differences, *zip(*runs, strict=True))
    for (configurations, _), found in zip(runs, all_found, strict=True):
        for name, (counted, computed) in found.items():
            print(f"{name}\n  {configurations[name]}\n  counted  {counted}\n  computed {computed}")
        wrong += len(found)
        print(
            f"{len(configurations) - len(found)} of {len(configurations)} equal, from "
            f"{next(iter(configurations))}"
        )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
