"""How far our FLOPs, and what others' own formulas say, are from what the real models multiply.

python benchmarks/bench_flops_peers.py [--peers-dir DIR] [--random N] [--seed S] [--full]

The truth is a count: Megatron-Core's GPTModel, forward and backward, every product counted from its operands'
shapes (tests/oracle). Every formula is called in its own package at run time; nothing of it is here. Not a
test: it asserts nothing.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.peers import PEERS, Peer
from benchmarks.provenance import head
from flagscale_perf.flops_calculator import ModelShape, count
from tests.oracle.comparison import NEWER_CORE, bundled_core, counted
from tests.oracle.configurations import FULL_SIZE, NAMED, NEWER, SLOW, Args, random_configurations

REPO = Path(__file__).resolve().parents[1]
OURS = "ours"
BY_DEFAULT = (
    "gpt3_175b",
    "llama3_8b",
    "qwen3_0_6b",
    "qwen2_5_7b_lora",
)  # of the full-size models: seconds each
ROUNDING = 1e-12  # most peers calculate in floating point; for ours exact is integer equality
INSTALL = "pip install --no-deps --target DIR -r benchmarks/peers/requirements.txt, then --peers-dir DIR"

Answer = dict[str, Any]
Truth = dict[str, int]


@dataclass(frozen=True)
class Cell:
    """What one formula says of one model.

    Attributes:
        text: as printed.
        verdict: exact, near (within 1 %), off, unsupported, crash or missing.
        reason: what a crash said.
    """

    text: str
    verdict: str
    reason: str = ""


def main() -> None:
    """Counts, asks every peer, and prints the tables."""
    options = parse_options()
    named = NAMED | (NEWER if NEWER_CORE.is_dir() else {})
    rows = {name: args for name, args in named.items() if not changes_hardware_flops_only(args)}
    rows |= {
        name.removesuffix("_recompute"): without_recompute(args)
        for name, args in full_size(options.full).items()
    }
    drawn = random_configurations(options.random, options.seed)
    truths = count_all(rows | drawn)
    table = ask_all(rows | drawn, truths, options.peers_dir)
    print(head("flops", "flops_calculator.py"))
    print_sources(options, len(rows), len(drawn))
    print_errors(list(rows), table)
    print()
    print_crashes(table)
    print()
    print_verdicts(list(rows), "named models", table)
    print()
    print_verdicts(list(drawn), f"random models, seed {options.seed}", table)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers-dir",
        type=Path,
        metavar="DIR",
        help=f"where the peers are that .venv does not have; {INSTALL}",
    )
    parser.add_argument(
        "--random",
        type=int,
        default=100,
        metavar="N",
        help="random models besides the named ones (default: 100)",
    )
    parser.add_argument("--seed", type=int, default=20240, help="of the random models (default: 20240)")
    parser.add_argument(
        "--full",
        action="store_true",
        help="every full-size model, DeepSeek-V3 with its 671 B parameters, too (minutes)",
    )
    return parser.parse_args()


# ---- the models --------------------------------------------------------------------------------


def changes_hardware_flops_only(args: Args) -> bool:
    """Recomputation and capacity do not change model FLOPs; behind a window the count still multiplies what
    the mask hides.
    """
    return any(
        name in args for name in ("recompute_granularity", "moe_pad_expert_input_to_capacity", "window_size")
    )


def full_size(all_of_them: bool) -> dict[str, Args]:
    return FULL_SIZE | SLOW if all_of_them else {name: FULL_SIZE[name] for name in BY_DEFAULT}


def without_recompute(args: Args) -> Args:
    return {name: value for name, value in args.items() if not name.startswith("recompute_")}


# ---- the truth ---------------------------------------------------------------------------------


def count_all(configurations: Mapping[str, Args]) -> dict[str, Truth]:
    """Model FLOPs of each, by convention."""
    counts: dict[str, Answer] = {}
    # Megatron-Core keeps tensors in globals, so models on the CPU and on the meta device are counted in
    # processes of their own.
    for on_meta, is_newer in ((False, False), (False, True), (True, False)):
        group = {
            name: args
            for name, args in configurations.items()
            if (bool(args.get("meta")), name in NEWER) == (on_meta, is_newer)
        }
        counts |= counted(group, [NEWER_CORE] if is_newer else bundled_core()) if group else {}
    return {name: model_flops(found["components"]) for name, found in counts.items()}


def model_flops(components: Mapping[str, Mapping[str, int]]) -> Truth:
    done = {name: phases["fwd"] + phases["bwd"] for name, phases in components.items()}
    attention = done.get("core_attention", 0) + done.get("mtp_core_attention", 0)
    return {"full": sum(done.values()), "causal_half": sum(done.values()) - attention // 2}


# ---- the answers -------------------------------------------------------------------------------


def ask_all(
    configurations: Mapping[str, Args], truths: Mapping[str, Truth], peers_dir: Path | None
) -> dict[str, dict[str, Cell]]:
    """Formula -> model -> cell."""
    table = {OURS: {name: our_cell(args, truths[name]) for name, args in configurations.items()}}
    for name, peer in PEERS.items():
        if version_of(peer, peers_dir) is None:
            table[name] = dict.fromkeys(configurations, Cell("-", "missing"))
            continue
        answers = ask(name, list(configurations.values()), peers_dir)
        exact = [truths[model][peer.convention] for model in configurations]
        table[name] = {
            model: cell(*pair)
            for model, pair in zip(configurations, zip(answers, exact, strict=True), strict=True)
        }
    return table


def our_cell(args: Args, truth: Truth) -> Cell:
    """The convention where we are worse, in integers."""
    totals = count(ModelShape.from_args(args), args["batch"], args["seq_length"]).totals
    pairs = [
        (totals["model_flops_causal_half"] or 0, truth["causal_half"]),
        (totals["model_flops_full_attention"] or 0, truth["full"]),
    ]
    worst = max(pairs, key=lambda pair: abs(pair[0] - pair[1]) / pair[1])
    return Cell("0", "exact") if worst[0] == worst[1] else error_cell(worst[0] / worst[1] - 1)


def cell(answer: Answer, truth: int) -> Cell:
    if "flops" not in answer:
        kind, reason = next(iter(answer.items()))
        return Cell({"unsupported": "none", "crash": "crash"}[kind], kind, reason)
    error = answer["flops"] / truth - 1
    return Cell("0", "exact") if abs(error) < ROUNDING else error_cell(error)


def error_cell(error: float) -> Cell:
    return Cell(f"{100 * error:+.2f}", "near" if abs(error) <= 0.01 else "off")


def ask(name: str, configurations: Sequence[Args], peers_dir: Path | None) -> list[Answer]:
    """The peer's answers, from a process that has it on its path. Raises RuntimeError where it does not even
    start.
    """
    paths = [REPO, *bundled_core()] if PEERS[name].bundled else [REPO, str(peers_dir)]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "TORCHDYNAMO_DISABLE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "benchmarks.peers.worker", name]
    done = subprocess.run(
        command,
        input=json.dumps(configurations),
        capture_output=True,
        text=True,
        cwd=REPO,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} did not start:\n{done.stderr[-4000:]}")
    answers: list[Answer] = json.loads(done.stdout.splitlines()[-1])
    return answers


def version_of(peer: Peer, peers_dir: Path | None) -> str | None:
    """The installed version; None where it is not installed."""
    if peer.bundled:
        return importlib.metadata.version(peer.distribution)
    return version_in(peer.distribution, peers_dir)


def version_in(distribution: str, directory: Path | None) -> str | None:
    path = [] if directory is None else [str(directory)]
    return next(
        (found.version for found in importlib.metadata.distributions(name=distribution, path=path)), None
    )


# ---- the page ----------------------------------------------------------------------------------


def print_sources(options: argparse.Namespace, rows: int, drawn: int) -> None:
    print(
        f"n          {rows} named and {drawn} random models (seed {options.seed}); model FLOPs of one "
        "step, forward and backward"
    )
    host, newer = version_of(PEERS["FlagScale"], None), version_in("megatron-core", NEWER_CORE)
    print(
        f"count      Megatron-Core of flag-scale {host}; where that lacks the option, megatron-core "
        f"{newer or 'not installed: left out'}"
    )
    print("attention  each is held against the count under its author's convention; ours against both")
    print(
        "adapters   HF 6N and verl are not told of them; torchtitan and litgpt have gate and up adapted apart"
    )
    for name, peer in PEERS.items():
        version = version_of(peer, options.peers_dir)
        found = (
            f"{peer.distribution} {version}, {peer.formula} ({peer.convention})"
            if version
            else f"not installed: {INSTALL}"
        )
        print(f"{name:10} {found}")
    print()
    print("error in %; 0 is exact to the FLOP (floating-point rounding of the others forgiven),")
    print("none: it has no such model, crash: it raised, -: not installed")


def print_errors(rows: Sequence[str], table: Mapping[str, Mapping[str, Cell]]) -> None:
    print(f"{'':26}" + "".join(f"{name:>11}" for name in table))
    for row in rows:
        print(f"{row:26}" + "".join(f"{cells[row].text:>11}" for cells in table.values()))


def print_crashes(table: Mapping[str, Mapping[str, Cell]]) -> None:
    for name, cells in table.items():
        for reason in sorted({found.reason for found in cells.values() if found.verdict == "crash"}):
            print(f"{name:10} crash: {reason}")


def print_verdicts(rows: Sequence[str], title: str, table: Mapping[str, Mapping[str, Cell]]) -> None:
    print(f"{f'of {len(rows)} {title}':36}" + "".join(f"{name:>11}" for name in table))
    wanted = {
        "exact": ("exact",),
        "within 1 %": ("exact", "near"),
        "unsupported": ("unsupported",),
        "crash": ("crash",),
    }
    for label, verdicts in wanted.items():
        numbers = (sum(cells[row].verdict in verdicts for row in rows) for cells in table.values())
        missing = [all(cells[row].verdict == "missing" for row in rows) for cells in table.values()]
        texts = ("-" if absent else str(number) for number, absent in zip(numbers, missing, strict=True))
        print(f"{label:36}" + "".join(f"{text:>11}" for text in texts))


if __name__ == "__main__":
    main()
