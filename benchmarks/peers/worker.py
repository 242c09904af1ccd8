"""Asks one peer: `python -m benchmarks.peers.worker NAME`, a JSON list of configurations in, on the last line
a JSON list of answers out.

An answer has one key: `flops` of a step, `unsupported` with the reason, or `crash` with what the peer raised.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.peers import PEERS, UnsupportedModelError
from flagscale_perf.flops_calculator import ModelShape

Formula = Callable[[dict[str, Any], ModelShape], float]


def ask(formula: Formula, args: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"flops": formula(args, ModelShape.from_args(args))}
    except UnsupportedModelError as error:
        return {"unsupported": str(error)}
    except Exception as error:  # a peer's crash is a result
        return {"crash": f"{type(error).__name__}: {error}"}


def main() -> None:
    warnings.filterwarnings("ignore")
    logging.disable()
    name = sys.argv[1]
    formula: Formula = importlib.import_module(f"benchmarks.peers.{PEERS[name].module}").load(name)
    answers = [ask(formula, args) for args in json.load(sys.stdin)]
    print()
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
