"""A training without torch: the monitor's own rank-0 side at work, with a printed loss that follows from the
iteration alone.

    python -m tests.faults.loop ITERATIONS END [OPTION=JSON ...]

END: return, exit (with 3), raise, memory (takes 256 MiB first), leak (takes 4 MiB each iteration), fork (in
step 100, a child that leaves with `sys.exit`), slow (long enough for what takes 10 s), ranks or nodes (there
is another rank, see `tests.faults.ranks`). Options are those of `PerfConfig`; without `perf_log_dir` nothing
is monitored. `facts` (a JSON object; NaN and Infinity are allowed) adds to what the host tells.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from tests.faults import ranks

STEP_S = {"slow": 0.06} | ranks.STEP_S
DEFAULT_STEP_S = 0.005


def main() -> None:
    iterations, end, *options = sys.argv[1:]
    given = {name: json.loads(value) for name, _, value in (option.partition("=") for option in options)}
    facts = given.pop("facts", {})
    logger, other = None, nullcontext(lambda: None)
    if "perf_log_dir" in given:
        if end in ranks.ENDS:
            facts |= ranks.become_rank_0(end)
            other = ranks.beside(end, int(iterations), given["perf_log_dir"])
        logger = _start(given, facts)
    reason = "completed"
    try:
        with other as step_beside:
            _train(int(iterations), logger, end, step_beside)
        _leave(end)
    except SystemExit as error:
        reason = f"exit {error.code}"
        raise
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    except Exception as error:
        reason = f"exception {type(error).__name__}"
        raise
    finally:
        if logger is not None:
            logger.close(reason)


def _start(options: dict[str, Any], facts: dict[str, Any]) -> Any:
    from flagscale_perf.arguments import PerfConfig
    from flagscale_perf.perf_logger import PerfLogger
    from tests.fakes import make_facts, make_identity

    config = PerfConfig(enable_perf_monitor=True, **options)
    identity = make_identity(0, pid=os.getpid()) if facts.get("world_size", 1) > 1 else None
    return PerfLogger.start(
        config, make_facts(device_uuid=facts.pop("device_uuid", None), **facts), _say, identity
    )


def _say(line: str) -> None:
    print(line, flush=True)


def _train(iterations: int, logger: Any, end: str, step_beside: Callable[[], None]) -> None:
    from tests.fakes import make_step

    state, loss = 1, 10.0
    leaked: list[bytes] = []
    for iteration in range(1, iterations + 1):
        began = time.monotonic()
        time.sleep(STEP_S.get(end, DEFAULT_STEP_S))
        state = state * 6364136223846793005 % (1 << 64)
        if end == "leak":
            leaked.append(bytes([1]) * (4 << 20))
        if end == "fork" and iteration == 100:
            assert os.waitpid(os.fork() or sys.exit(3), 0)[1] == 3 << 8
        loss -= loss * (state >> 40) / (1 << 30)
        bits = struct.pack(">f", loss).hex()
        if logger is not None:
            logger.step(make_step(iteration))
        step_beside()
        elapsed_ms = (time.monotonic() - began) * 1000
        print(
            f" iteration {iteration:8d}/{iterations:8d} | consumed samples: {8 * iteration:12d} | "
            "elapsed time per iteration (ms): "
            f"{elapsed_ms:.1f} | lm loss: {bits} | number of nan iterations:   0 |",
            flush=True,
        )
        if str(iteration) in os.environ.get("FAULT_HOLD_AT", "").split(","):
            # a pipe: until the fault is there, however late a busy machine makes that
            with open(f"{os.environ['FAULT_HOLD']}{iteration}") as go:
                go.read()


def _leave(end: str) -> None:
    if end == "exit":
        sys.exit(3)
    if end == "raise":
        raise ValueError("training failed")
    if end == "memory":
        print(len(bytearray(256 << 20)), "bytes taken")


if __name__ == "__main__":
    main()
