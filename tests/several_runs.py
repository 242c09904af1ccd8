"""A directory of runs for the pages that show several: `python -m tests.several_runs DIRECTORY`.

Llama on another layout and with data that comes late, a mixture of experts twice, a killed one, and files
that are no runs.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.session import file_names
from tests.fakes import MS, SECOND
from tests.run_files import left_behind
from tests.synthetic import STEPS, TROUBLED, Plan, records_of

_SAVING = Plan(step=lambda number: {"checkpoint_ns": 9 * SECOND} if number % 100 == 0 else {})
_OTHER_LAYOUT = Plan(
    facts={"tensor_parallel": 4, "data_parallel": 2},
    extra=lambda number: {"backward_ns": 60 * MS, "exposed_grad_comm_ns": (number % 7) * 2 * MS},
)
_EXPERTS = {"model_family": "mixtral", "expert_parallel": 4}
_UNEVEN = Plan(
    facts=_EXPERTS | {"peak_flop_per_s": None},
    extra=lambda number: {"forward_ns": (200 + number % 37) * MS},
)
_EVEN = Plan(facts=_EXPERTS, extra=lambda number: {"forward_ns": 170 * MS})
_RUNS = (  # directory, session, plan, steps
    ("llama_7b", "20240129_103000", Plan(), STEPS),
    ("llama_7b", "20240129_114500", _SAVING, 450),
    ("llama_7b_late_data", "20240130_090000", TROUBLED, STEPS),
    ("llama_7b_tp4", "20240131_081500", _OTHER_LAYOUT, STEPS),
    ("moe/mixtral", "20240201_120000", _UNEVEN, STEPS),
    ("moe/mixtral", "20240201_153000", _EVEN, STEPS),
)


def write(directory: Path) -> None:
    """All of them."""
    for place, session_id, plan, steps in _RUNS:
        header, *records = records_of(plan)
        if steps < STEPS:  # killed: nothing of what comes after that step
            last = max(n for n, record in enumerate(records) if getattr(record, "iteration", STEPS) == steps)
            records = records[: last + 1]
        path = directory / place / file_names(session_id)["records"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(map(encode, [replace(header, session_id=session_id), *records])))
        if steps < STEPS:
            left_behind(path)
    (directory / "moe/mixtral" / file_names("20240202_000000")["records"]).touch()
    (directory / "llama_7b" / file_names("20240203_000000")["records"]).write_bytes(b"\0 no run\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
