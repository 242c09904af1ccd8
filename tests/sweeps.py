"""Two weeks of runs whose configuration and speed are known: micro-batch x TP x recomputation x seeds. In the
second week the loader has fewer workers, and data comes late.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.session import file_names
from tests.fakes import MS, SECOND
from tests.synthetic import Plan, records_of

WEEKS = (46, 47)
LATE_MS = 40  # of about 1,250 ms
NOISE_MS = 3  # standard deviation between seeds


def write(
    directory: Path,
    micro_batches: Sequence[int] = (1, 2),
    tensor_parallel: Sequence[int] = (1, 2),
    recompute: Sequence[str | None] = (None, "full"),
    seeds: Sequence[int] = (1, 2, 3),
    steps: int = 40,
) -> None:
    """A directory for each week, in it one for each run. A larger micro-batch is faster, tensor parallelism
    and recomputation are slower.
    """
    choices = itertools.product(WEEKS, micro_batches, tensor_parallel, recompute, seeds)
    for number, (week, micro_batch, tensor, granularity, seed) in enumerate(choices):
        noise = random.Random(f"{number}").gauss(0, NOISE_MS)
        forward_ns = round((300 / micro_batch + 20 * tensor + 80 * bool(granularity) + noise) * MS)
        late_ns = LATE_MS * MS * (week == WEEKS[1])
        arguments = {
            "recompute_granularity": granularity,
            "num_workers": 8 if week == WEEKS[0] else 2,
            "seed": seed,
            "exp_name": f"m{micro_batch}-t{tensor}-{granularity or 'none'}",
            "save": f"/checkpoints/{number}",
            "log_dir": f"/logs/{number}",
        }
        facts = {
            "tensor_parallel": tensor,
            "data_parallel": 8 // tensor,
            "micro_batch_size": micro_batch,
            "arguments": arguments,
        }
        more = {"forward_ns": forward_ns, "data_loading_ns": late_ns}
        header, *records = records_of(Plan(facts=facts, steps=steps, extra=lambda _, more=more: more))
        session_id = f"202401{week - 36:02d}_{number // 60:02d}{number % 60:02d}00"
        header = replace(
            header, session_id=session_id, start_wall_ns=header.start_wall_ns + number * 3600 * SECOND
        )
        place = directory / f"week{week}" / f"{arguments['exp_name']}-{seed}"
        place.mkdir(parents=True)
        (place / file_names(session_id)["records"]).write_bytes(b"".join(map(encode, [header, *records])))
