"""Counts models in a process of their own and holds the formulas against the counts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from flagscale_perf.flops_calculator import ModelShape, count
from tests.oracle.configurations import Args
from tests.processes import flagscale as fs
from tests.processes import warm

REPO = Path(__file__).parents[2]
# Megatron-Core as PyPI has it, apart from the environment's own packages so that FlagScale's bundled one
# stays the host.
NEWER_CORE = Path(sys.prefix) / "share" / "megatron-core"


def bundled_core() -> list[Path]:
    """Where FlagScale and the Megatron-Core it brings along are."""
    return [fs.root(), fs.root() / "third_party" / "Megatron-LM"]


def counted(configurations: dict[str, Args], core: list[Path]) -> dict[str, dict[str, Any]]:
    """What the real models do, by name: components, what was not attributed, parameters.

    Models given by a config.json are transformers', all others Megatron-Core's, and these come with the total
    of FlopCounterMode.
    """
    path = os.pathsep.join(map(str, [REPO, *core]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", warm.SOCKET: warm.address()}
    of_transformers = all("config" in args for args in configurations.values())
    done = subprocess.run(
        fs.workers(1, "-m", f"tests.oracle.{'transformers_' * of_transformers}counter"),
        input=json.dumps(list(configurations.values())),
        capture_output=True,
        text=True,
        cwd=REPO,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(zip(configurations, json.loads(done.stdout.splitlines()[-1]), strict=True))


def computed(args: Args) -> dict[str, Any]:
    """What the formulas say, in the counter's form."""
    shape = ModelShape.from_hf(args | args["config"]) if "config" in args else ModelShape.from_args(args)
    table = count(shape, args["batch"], args["seq_length"], core=args.get("core", "recurrent"))
    total = {} if "config" in args else {"flop_counter_total": table.totals["hardware_flops_full_attention"]}
    return total | {
        "components": {name: _as_multiplied(parts) for name, parts in table.components.items()},
        "unattributed": 0,
        "parameters": table.parameters,
    }


def _as_multiplied(parts: dict[str, int]) -> dict[str, int]:
    """The phases with the padding of experts in them; forward and backward have it in the same proportion."""
    model = parts["fwd"] + parts["bwd"]
    multiplied = {
        phase: Fraction(parts[phase], model or 1) * (model + parts["padding"]) for phase in ("fwd", "bwd")
    }
    assert all(flops.denominator == 1 for flops in multiplied.values())
    return {**{phase: int(flops) for phase, flops in multiplied.items()}, "recompute": parts["recompute"]}


def differences(
    configurations: dict[str, Args], core: list[Path]
) -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Name -> (counted, computed) of every model where the two are not equal in every integer."""
    found = {}
    for name, real in counted(configurations, core).items():
        ours = computed(configurations[name])
        if real != ours:
            found[name] = (real, ours)
    return found
