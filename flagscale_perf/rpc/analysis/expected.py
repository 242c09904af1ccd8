"""What the forward passes of a split model must send and receive, in closed form, compared with what they
did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, TypeAlias

from flagscale_perf.rpc.traffic import (
    TOKEN_ID_BYTES,
    ModelSizes,
    Pass,
    Stage,
    pass_traffic,
    total,
)

_FIRST, _LAST = "Embedding", "LMHead"
# A method that occurs in one way of splitting a layer only; the first one found decides.
_CUT = {
    "fused_layer": Stage.FUSED_LAYER,
    "AttentionLinear": Stage.FUSED_BLOCKS,
    "Attention": Stage.FUSED_ATTENTION,
    "MatmulLinear": Stage.CALLS4,
    "Matmul": Stage.CALLS6,
}
_ITEM_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
Call: TypeAlias = tuple[str, float, float]  # method, bytes sent and received


class Volume(NamedTuple):
    """Bytes of arrays."""

    sent: int
    received: int

    def __add__(self, other: object) -> Volume:
        """The sum of both."""
        assert isinstance(other, Volume)
        return Volume(self.sent + other.sent, self.received + other.received)


@dataclass(frozen=True)
class Expected:
    """The forward passes of a session.

    Attributes:
        passes: how many.
        found: what their calls sent and received.
        item_bytes: of a value on the way, by what the first call of each pass received.
        by_model: what the model's passes have with values of this size.
        dtype: that the server says it computes in, without `torch.`; empty where it does not say.
        in_dtype: what they have in that type; None where it is not known.
        repeats_kv: keys and values went once per query head.
    """

    passes: int
    found: Volume
    item_bytes: int
    by_model: Volume
    dtype: str
    in_dtype: Volume | None
    repeats_kv: bool

    @property
    def is_wide(self) -> bool:
        """Whether values travel in a wider type than the server computes in."""
        return self.item_bytes > _ITEM_BYTES.get(self.dtype, self.item_bytes)


def expected(
    described: Mapping[str, Any] | None, dtype: str | None, calls: Sequence[Call]
) -> Expected | None:
    """None if the server does not describe its model, or if the calls are not passes over it one after
    another.
    """
    names = [each.name for each in fields(ModelSizes)]
    if described is None or not all(isinstance(described.get(name), int) for name in names):
        return None
    model = ModelSizes(**{name: described[name] for name in names})
    found = [*_passes(model, calls)]
    if not found or None in found:
        return None
    runs = [each for each in found if each is not None]
    name = (dtype or "").removeprefix("torch.")
    items = _ITEM_BYTES.get(name)
    of_all = [call for run in runs for call in run.calls]
    return Expected(
        len(runs),
        Volume(round(sum(sent for _, sent, _ in of_all)), round(sum(back for *_, back in of_all))),
        max(run.form.item_bytes for run in runs),
        sum((_volume(model, run.form) for run in runs), Volume(0, 0)),
        name if items else "",
        sum((_volume(model, replace(run.form, item_bytes=items)) for run in runs), Volume(0, 0))
        if items
        else None,
        any(run.form.repeat_kv for run in runs),
    )


class _Run(NamedTuple):
    form: Pass
    calls: Sequence[Call]


def _passes(model: ModelSizes, calls: Sequence[Call]) -> Iterator[_Run | None]:
    """Each pass; None for calls that begin like a pass but are not one."""
    cached, held = 0, list[Call]()
    for call in calls:
        if call[0] == _FIRST:
            held = []
        elif not held:
            continue  # before the first pass, or between two
        held.append(call)
        if call[0] == _LAST:
            run = _pass(model, held, cached)
            yield run
            held = []
            if run is not None:
                cached = run.form.cached + run.form.tokens


def _pass(model: ModelSizes, calls: Sequence[Call], cached: int) -> _Run | None:
    (_, ids, hidden), (_, last, _) = calls[0], calls[-1]
    rows = round(ids / TOKEN_ID_BYTES)  # of all sequences
    items = round(hidden / max(1, rows * model.hidden))
    batch = round(last / max(1, model.hidden * items))
    methods = {method for method, *_ in calls}
    stage = next((stage for method, stage in _CUT.items() if method in methods), None)
    if stage is None or not rows or not batch or rows % batch:
        return None
    tokens = rows // batch
    form = Pass(stage, batch, tokens, cached if tokens == 1 else 0, items)
    if len(pass_traffic(model, form)) != len(calls):
        return None
    sent = sum(sent for _, sent, _ in calls)
    forms = (form, replace(form, repeat_kv=False))
    return _Run(min(forms, key=lambda each: abs(_volume(model, each).sent - sent)), calls)


def _volume(model: ModelSizes, form: Pass) -> Volume:
    _, sent, received = total(pass_traffic(model, form))
    return Volume(sent, received)
