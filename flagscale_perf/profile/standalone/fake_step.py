"""A Hugging Face model's step run with fake tensors, which have a shape and no memory: what it will need."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from flagscale_perf.flops_calculator import ModelShape, count
from flagscale_perf.profile.prediction import BACKWARD, FORWARD, OPTIMIZER, Prediction, Setup
from flagscale_perf.profile.standalone.counted import Counted
from flagscale_perf.profile.standalone.model import SMALL_QWEN3, made_model
from flagscale_perf.spine.errors import PerfError

ADAMW = "adamw"
TOTAL = "Total"
# What the tracker calls a reference -> what we call what it holds.
HELD = {
    "PARAM": "parameters",
    "BUFFER": "buffers",
    "GRAD": "gradients",
    "OPT": "optimizer",
    "ACT": "activations",
    "TEMP": "temporary",
    "OTH": "other",
}
Parts = Callable[[Callable[[str], Any]], None]


@dataclass(frozen=True)
class Ready:
    """A model with what a step of it takes.

    Attributes:
        run: one step; it is given what opens a block for each part of it.
    """

    model: torch.nn.Module
    optimizer: torch.optim.Optimizer | None
    ids: torch.Tensor
    run: Parts


def predict(setup: Setup, config: Path | None) -> Prediction:
    """Predicts the second step. Nothing is allocated but shapes, and nothing is computed.

    Args:
        setup: which step.
        config: a directory with a config.json, or such a file; None for the small Qwen3 that is built in.

    Raises PerfError for a configuration that no model can be made of, or one that decides by what its tensors
    hold, which fake ones do not know.
    """
    logger = logging.getLogger("torch._subclasses.fake_tensor")  # prints what it raises, too
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    with FakeTensorMode():
        try:
            return _predicted(setup, config)
        except (RuntimeError, NotImplementedError) as error:
            first = str(error).strip().split("\n")[0]
            raise PerfError(
                f"--model {config}: a step of it cannot run with fake tensors ({first}); profile it instead:"
                " flagscale-perf profile run"
            ) from None
        finally:
            logger.setLevel(level)


def _predicted(setup: Setup, config: Path | None) -> Prediction:
    ready = made_ready(setup, config)
    ready.run(nullcontext)  # the optimizer makes its state
    tracker = MemTracker()
    tracker.track_external(ready.model, ready.ids, *([ready.optimizer] if ready.optimizer else []))
    with tracker:
        ready.run(nullcontext)
    counted = Counted(ready.model)
    with counted:
        ready.run(counted.part)
    return Prediction(
        setup=setup,
        parameters=sum(each.numel() for each in ready.model.parameters()),
        parameter_bytes=_bytes(ready.model.parameters()),
        gradient_bytes=0
        if setup.is_inference
        else _bytes(each for each in ready.model.parameters() if each.requires_grad),
        optimizer_bytes=optimizer_bytes(ready.optimizer),
        at_peak=_at_peak(tracker),
        work=counted.work,
        flops_calculator=_model_flops(setup, config),
    )


def made_ready(setup: Setup, config: Path | None) -> Ready:
    """The model, with fake tensors where those are entered. Raises PerfError."""
    model = made_model(config, setup.tokens, getattr(torch, setup.dtype))
    ids = torch.randint(0, model.config.vocab_size, (setup.batch, setup.tokens))
    model.train(not setup.is_inference)
    optimizer = None
    if not setup.is_inference and setup.optimizer == ADAMW:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True if setup.is_foreach else None)

    def train(part: Callable[[str], Any]) -> None:
        with part(FORWARD):
            loss = model(input_ids=ids, labels=ids).loss
        with part(BACKWARD):
            loss.backward()
        if optimizer is not None:
            with part(OPTIMIZER):
                optimizer.step()
        model.zero_grad()

    def infer(part: Callable[[str], Any]) -> None:
        with part(FORWARD), torch.no_grad():
            model(input_ids=ids, use_cache=True)

    return Ready(model, optimizer, ids, infer if setup.is_inference else train)


def optimizer_bytes(optimizer: torch.optim.Optimizer | None) -> int:
    """Bytes of the optimizer's state: 0 before its first step."""
    if optimizer is None:
        return 0
    states = (value for state in optimizer.state.values() for value in state.values())
    return _bytes(value for value in states if isinstance(value, torch.Tensor))


def _bytes(tensors: Any) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def _at_peak(tracker: Any) -> dict[str, int]:
    """Bytes at the peak by their purpose, over all devices; purposes without any are left out."""
    found: dict[str, int] = {}
    for by_type in tracker.get_tracker_snapshot("peak").values():
        for reference, size in by_type.items():
            if reference != TOTAL and size:
                name = HELD.get(getattr(reference, "name", ""), str(reference))
                found[name] = found.get(name, 0) + int(size)
    return found


def _model_flops(setup: Setup, config: Path | None) -> int | None:
    """FLOPs by the package's formulas, which know no operators; None for a family without any."""
    try:
        table = count(ModelShape.from_hf(_config(config)), setup.batch, setup.tokens)
    except PerfError:
        return None
    parts = ("fwd",) if setup.is_inference else ("fwd", "bwd")
    return sum(component[part] for component in table.components.values() for part in parts)


def _config(config: Path | None) -> dict[str, Any]:
    if config is None:
        return SMALL_QWEN3 | {"model_type": "qwen3"}
    path = config / "config.json" if config.is_dir() else config
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
