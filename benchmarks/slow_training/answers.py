"""What an answer may say, and what is wrong with one that says otherwise.

README.md beside this file has an example.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

CAUSES = ("work", "speed")
WAITS = ("exposed_grad_comm", "exposed_param_comm", "exposed_stat_comm", "pipeline_recv_wait")
PHASES = ("data_loading", "forward", "backward", *WAITS, "pipeline_send", "zero_grad", "optimizer",
          "optimizer_copy_grad", "optimizer_unscale_check", "optimizer_clip", "optimizer_inner_step",
          "optimizer_copy_param", "optimizer_count_zeros", "forward_backward_other", "other",
          "between_steps")  # fmt: skip
COSTS = ("cost_least_ms", "cost_ms", "cost_most_ms")


class WrongAnswer(ValueError):
    """An answer that cannot be scored: where, what is wrong, its value, and what to write."""


def read(path: Path, truths: dict[str, Any]) -> dict[str, Any]:
    """Of a file."""
    try:
        answer = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise WrongAnswer(f"{path.name}: {error}; name a file with an answer as JSON") from None
    return checked(answer, truths, path.name)


def checked(answer: Any, truths: dict[str, Any], where: str) -> dict[str, Any]:
    """The same answer, if every run has one and all of it can be scored."""
    form = '{"tool": "name and version", "answers": {"RUN": [...]}}'
    if not isinstance(answer, dict) or not isinstance(answer.get("tool"), str):
        raise WrongAnswer(f"{where}: is no object with a tool's name; write {form}")
    if not isinstance(answer.get("answers"), dict):
        raise WrongAnswer(f"{where}: answers is {answer.get('answers')!r}; write {form}")
    if unknown := sorted(answer["answers"].keys() - truths.keys()):
        raise WrongAnswer(
            f"{where}: there is no run {unknown[0]!r}; the runs are those of {len(truths)} files"
        )
    for run in truths:
        _check_run(answer["answers"].get(run), f"{where}: {run}")
    return answer


def _check_run(found: Any, where: str) -> None:
    if isinstance(found, dict) and found.get("abstain") is True and found.get("reason"):
        return
    if not isinstance(found, list):
        how = '[] where nothing is slow, or {"abstain": true, "reason": "..."}'
        raise WrongAnswer(f"{where}: {found!r} is no list of findings; write {how}")
    for place, each in enumerate(found):
        _check_finding(each, f"{where}[{place}]")


def _check_finding(each: Any, where: str) -> None:
    allowed = ("rank", "phase", "cause", "work_share", *COSTS)
    if not isinstance(each, dict) or each.keys() - set(allowed):
        raise WrongAnswer(f"{where}: {each!r} is no finding; its fields are {', '.join(allowed)}")
    rank, phase, cause = (each.get(name) for name in allowed[:3])
    if rank is not None and (type(rank) is not int or rank < 0):
        raise WrongAnswer(f"{where}: rank is {rank!r}; write a rank's number, or null where it is not known")
    for name, value, known in (("phase", phase, PHASES), ("cause", cause, CAUSES)):
        if value is not None and value not in known:
            raise WrongAnswer(f"{where}: {name} is {value!r}; write one of {', '.join(known)}, or null")
    share, costs = each.get("work_share"), [each.get(name) for name in COSTS]
    if share is not None and not (is_number(share) and 0 <= share <= 1):
        raise WrongAnswer(f"{where}: work_share is {share!r}; write the part of the cost, 0 to 1, or null")
    for name, cost in zip(COSTS, costs, strict=True):
        if cost is not None and not is_number(cost):
            raise WrongAnswer(f"{where}: {name} is {cost!r}; write milliseconds of a step, or null")
    if (costs[0] is None) != (costs[2] is None) or (
        costs[0] is not None and costs != sorted(costs, key=_low)
    ):
        raise WrongAnswer(f"{where}: {costs} are no interval; write {' <= '.join(COSTS)}, or no bounds")


def is_number(value: Any) -> bool:
    """Of JSON, and finite."""
    return type(value) in (int, float) and math.isfinite(value)


def _low(cost: float | None) -> float:
    return -math.inf if cost is None else cost
