"""What it costs rank 0's writer process to look at every rank of a large job, and how often it is right.

python benchmarks/bench_ranks.py [--ranks N] [--rounds N] [--even-rounds N]

A simulated job (tests/rank_simulator.py), block by block through the encoding they are sent in. Not a test:
it asserts nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.provenance import head
from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.blocks import BLOCK_STEPS, Block, block_steps, decode_block, encode_block
from flagscale_perf.training.ranks.kept import KeptBlocks, kept_bytes
from flagscale_perf.training.ranks.late import LateRanks
from flagscale_perf.training.ranks.view import RanksView
from tests.fakes import make_interval
from tests.rank_simulator import PER_NODE, Job, Noise, Simulation, Slow

STEP_S = 5.0  # of a job of this size, only to put the cost beside something
ONSET = 12 * BLOCK_STEPS + 2
TRIALS = 20
JOBS = (
    Job(data=2),
    Job(data=8),
    Job(tensor=8, data=4),
    Job(tensor=2, data=4),
    Job(data=64),
    Job(data=1024),
)
NOISES = {
    "steps differ by 1 %": Noise(step=0.01, hiccup=0.0001),
    "by 2 %, hiccups, drift": Noise(
        step=0.02, heavy=0.005, drift=0.005, common=0.01, hiccup=0.0001, uneven=0.005
    ),
    "by 5 %": Noise(step=0.05),
    "drift of 2 %, 2 % of all": Noise(step=0.02, drift=0.02, common=0.02),
}


@dataclass
class Cost:
    """Sums over rounds."""

    encode_s: float = 0.0
    decode_s: float = 0.0
    look_s: float = 0.0
    keep_s: float = 0.0
    sent_bytes: int = 0
    written_bytes: int = 0


def main() -> None:
    """Measures and prints: machine, cost of a round, memory, who was named; then rates of alarms and of
    detection.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=10_000, help="of the large job (default: 10000)")
    parser.add_argument("--rounds", type=int, default=30, help="of the large job (default: 30)")
    parser.add_argument(
        "--even-rounds", type=int, default=1000, help="of even steps, of each smaller job (default: 1000)"
    )
    options = parser.parse_args()
    print(head("training/ranks", "training/ledger", "spine"))
    large_job(options.ranks, options.rounds)
    print(
        f"\nfalse alarms in {options.even_rounds * BLOCK_STEPS} even steps (1024 ranks: a tenth of "
        "them), and how often a rank"
    )
    print(
        f"that becomes 10 % slow is named within 25 steps (of {TRIALS} trials; 1024 ranks: of {TRIALS // 4})"
    )
    print(f"{'ranks: TP x DP x PP':22}" + "".join(f"{name:>28}" for name in NOISES))
    for job in JOBS:
        cells = [
            f"{alarms(job, noise, options.even_rounds)} alarms, {detected(job, noise)} named"
            for noise in NOISES.values()
        ]
        name = f"{job.size}: {job.tensor} x {job.data} x {job.stages}"
        print(f"{name:22}" + "".join(f"{cell:>28}" for cell in cells), flush=True)


# ---- one large job -----------------------------------------------------------------------------


def large_job(ranks: int, rounds: int) -> None:
    job, slow_rank = Job(data=ranks), ranks // 3
    # With a hiccup in every 10 000th step of a rank, every step of such a job would have one.
    noise = replace(NOISES["by 2 %, hiccups, drift"], hiccup=1e-6)
    simulation = Simulation(job, noise, (Slow((slow_rank,), 0.10, "forward", ONSET),))
    before_kib = resident_kib()
    view, cost = RanksView(RunFacts.of({"world_size": ranks})), Cost()
    view.join(job.identities())
    with TemporaryDirectory() as directory:
        kept = KeptBlocks(Path(directory), 1, kept_bytes(None, ranks))
        for blocks in simulation.rounds(rounds):
            for record in one_round(view, kept, blocks, cost):
                cost.written_bytes += len(encode(record))
                if isinstance(record, EventRecord):
                    print(f"told       {record.text} (at iteration {record.iteration}, slow from {ONSET} on)")
        kept.close()
        kept_size = sum(path.stat().st_size for path in Path(directory).iterdir())
    start = time.process_time()
    cost.written_bytes += sum(
        len(encode(record)) for record in (*view.summary_due(make_interval(1)), *view.close())
    )
    table_s = time.process_time() - start
    cpu_s = (cost.decode_s + cost.look_s) / rounds
    nodes, steps = -(-ranks // PER_NODE), block_steps(ranks)
    print(
        f"n          {ranks} ranks on {nodes} nodes, {rounds} rounds of {steps} steps; rank "
        f"{slow_rank} 10 % slow in forward"
    )
    print(
        f"rank 0     {cpu_s:.2f} s CPU a round ({cost.decode_s / rounds:.2f} s decoding, "
        f"{cost.look_s / rounds:.2f} s looking)"
    )
    busy = 100 * cpu_s / (steps * STEP_S)
    print(
        f"           {1e4 * cpu_s / steps:.0f} s for 10,000 steps; with steps of {STEP_S:g} s "
        f"{busy:.1f} % of one core; a table of all ranks "
        f"{table_s:.2f} s"
    )
    print(
        f"node       {1e3 * cost.encode_s / rounds / nodes:.2f} ms CPU a round, "
        f"{cost.sent_bytes / rounds / nodes:.0f} bytes"
    )
    print(
        f"all nodes  {cost.sent_bytes / rounds / 1e6:.2f} MB a round; the run file: "
        f"{cost.written_bytes / rounds:.0f} bytes a round"
    )
    print(
        f"kept       {kept_size / ranks / rounds / steps:.0f} bytes a rank and step;"
        f" {1e3 * cost.keep_s / rounds:.1f} ms CPU a round, {100 * cost.keep_s / rounds / cpu_s:.1f} % more"
    )
    print(f"memory     {(resident_kib() - before_kib) / 1024:.0f} MiB more, the simulation's own included")


def one_round(view: RanksView, kept: KeptBlocks, blocks: Sequence[Block], cost: Cost) -> list[object]:
    """The round's way from the nodes to the view, and beside it to the files that keep it."""
    start = time.process_time()
    nodes = [
        [dump(encode_block(block)).encode() for block in blocks[at : at + PER_NODE]]
        for at in range(0, len(blocks), PER_NODE)
    ]
    encoded = time.process_time()
    arrived = [decode_block(content) for lines in nodes for content in json.loads(b"[%b]" % b",".join(lines))]
    decoded = time.process_time()
    records: list[object] = [record for block in arrived for record in view.add(block)]
    looked = time.process_time()
    for number, lines in enumerate(nodes):
        kept.add(f"host-{number}", lines)
    kept.flush()
    cost.keep_s += time.process_time() - looked
    cost.look_s += looked - decoded
    cost.decode_s += decoded - encoded
    cost.encode_s += encoded - start
    cost.sent_bytes += sum(len(line) + 1 for lines in nodes for line in lines)
    return records


def resident_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


# ---- how often it is right ---------------------------------------------------------------------


def named(job: Job, simulation: Simulation, rounds: int) -> list[StragglerRecord]:
    late, who = LateRanks(), job.identities()
    found = [
        each
        for blocks in simulation.rounds(rounds)
        for each in late.look((who[block.rank], block) for block in blocks)
    ]
    return [each for each in found if isinstance(each, StragglerRecord) and not each.is_over]


def alarms(job: Job, noise: Noise, rounds: int) -> int:
    """Of even steps; the largest jobs get fewer of them, so that the benchmark comes to an end."""
    return len(named(job, Simulation(job, noise), rounds if job.size < 1000 else rounds // 10))


def detected(job: Job, noise: Noise) -> int:
    """Trials in which the slow rank is among those named in time; onsets at every place in a block, after 160
    steps.
    """
    hits = 0
    for trial in range(TRIALS if job.size < 1000 else TRIALS // 4):
        rank, onset = trial % job.size, 160 + trial % BLOCK_STEPS
        simulation = Simulation(job, noise, (Slow((rank,), 0.10, "forward", onset),), seed=trial)
        hits += any(
            rank in each.ranks and each.iteration <= onset + 25 for each in named(job, simulation, 37)
        )
    return hits


if __name__ == "__main__":
    main()
