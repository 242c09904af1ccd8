"""Rules for what slows the calls, each with the gain that a change would bring, calculated from this
session's own calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isclose
from typing import NamedTuple

from flagscale_perf.analysis.rules import (
    Advice,
    Case,
    Change,
    Evidence,
    Finding,
    Limit,
    Rule,
    find,
    rule,
    unless,
)
from flagscale_perf.rpc.analysis.costs import Costs, Interval
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.facts import PROBE
from flagscale_perf.rpc.figures import MB
from flagscale_perf.rpc.stages import STAGES, stage_times
from flagscale_perf.rpc.traffic import SPLIT_METHODS
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

GAIN = "calls in the same time"
_REQUIREMENT = "the requirement of this log"
_WORTH = Limit(0.01, "share", "ours: less is not worth a change")
_SAME = 1e-3  # ends of an interval nearer to one another are one figure
_WAITS = 3  # times an empty call: what calls through shared memory take beyond it is no transport
_PLACE = {stage.name: place for place, stage in enumerate(STAGES)}


@dataclass(frozen=True)
class CallsCase(Case):
    """What the rules examine.

    Attributes:
        report: the calls.
        costs: what their bytes cost, by the calls themselves.
    """

    report: CallsReport
    costs: Costs

    def share(self, stage: str) -> float:
        """Share of the calls' time."""
        totals = self.report.overall
        return totals.stages_ns[_PLACE[stage]] / totals.total_ns if totals.total_ns else 0.0

    @property
    def is_local(self) -> bool:
        """Whether the processes are known to share a machine and their calls do not use TCP."""
        return self.report.facts.transport in ("IPC", "INPROC")

    @property
    def is_shared(self) -> bool:
        """Whether large arrays already travel in shared memory."""
        return self.report.facts.payload == "shared"

    @cached_property
    def is_split_model(self) -> bool:
        """Whether the calls are those of a model that is split as examples/tee_gpu does, whose options can be
        advised then.
        """
        is_own = self.report.facts.role != PROBE and set(self.report.totals.methods) <= SPLIT_METHODS
        return is_own and self.has("BatchLinear", "fused_layer")

    def has(self, *methods: str) -> bool:
        """Whether one of these methods was called."""
        return any(method in self.report.totals.methods for method in methods)

    def saved(self, saved_ns: float) -> float:
        """The saving as a share of the calls' time."""
        whole = self.report.overall.total_ns
        return min(1.0, saved_ns / whole) if whole else 0.0


CallsRule = Rule[CallsCase]


def _gains(
    this: CallsRule, case: CallsCase, title: str, saved: Interval, evidence: Sequence[Evidence]
) -> Finding:
    """The cost as a share, and what would be gained without it; both as intervals where it is one."""
    whole, wall = case.report.overall.total_ns, case.report.wall_ns
    least, most = (_gain(each, whole) for each in saved)
    known = isclose(saved.least, saved.most, rel_tol=_SAME)
    return replace(
        this.finding(title, list(evidence), GAIN),
        cost_s=saved.most / NS_PER_S,
        cost_share=saved.most / wall if wall else None,
        gain=most,
        least_s=None if known else saved.least / NS_PER_S,
        least_gain=None if known or most is None else least,
    )


def _gain(saved_ns: float, whole_ns: int) -> float | None:
    return saved_ns / (whole_ns - saved_ns) if saved_ns < whole_ns else None


def _exactly(time_ns: float) -> Interval:
    return Interval(time_ns, time_ns)


def option(flag: str, text: str) -> Advice:
    """A change that is an option of examples/tee_gpu where the calls are of that, and else its text alone."""
    return Advice([flag], text, make=lambda case: Change([flag] if case.is_split_model else [], text))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _share_of(case: CallsCase, stage: str) -> str:
    """The figure's name, with the one of the slowest calls in which the stage took longest."""
    place = _PLACE[stage]
    call = max(case.report.slowest, key=lambda one: stage_times(one)[place])
    took, whole = stage_times(call)[place] / NS_PER_MS, call.total_ns / NS_PER_MS
    example = f"call {call.number}, {call.method}: {took:.3f} of {whole:.3f} ms"
    return f"share of the time in {stage} ({example})"


@rule(
    limits={"serialize": Limit(0.30, "share", _REQUIREMENT)},
    causes=["arrays are copied into a message, byte by byte: msgpack, tobytes"],
    changes=[
        unless(
            option("--payload shared", "put arrays into shared memory; the message holds where they are"),
            lambda case: case.is_shared,
        ),
        unless(
            option("--payload frames", "send arrays as frames of their own, not inside a message"),
            lambda case: case.report.facts.payload in ("shared", "frames"),
        ),
        unless(
            option("LLAMA_DTYPE=bfloat16", "bfloat16 for float32 halves the bytes"),
            lambda case: not case.costs.may_be_wide,
        ),
    ],
)
def serialization(this: CallsRule, case: CallsCase) -> Finding | None:
    """Serializing takes more than 30 % of the calls' time."""
    share = case.share("serialize")
    if not this.exceeds(share, "serialize"):
        return None
    saved_ns = case.report.overall.stages_ns[_PLACE["serialize"]]
    evidence = [this.broke(_share_of(case, "serialize"), share, "serialize")]
    title = f"Serialization takes {_percent(share)} of the time"
    return _gains(this, case, title, _exactly(saved_ns), evidence)


@rule(
    limits={"transport": Limit(0.30, "share", _REQUIREMENT)},
    causes=[
        "TCP where both processes are on one machine",
        "copies in the socket: the time follows the bytes, not the calls",
        "the server, where Recv holds its time, too",
    ],
    changes=[
        unless(
            option("LLAMA_IPC_PATH=ipc:///...", "where both processes are on one machine: IPC, not TCP"),
            lambda case: case.is_local,
        ),
        unless(
            option("--payload shared", "large arrays cost least in shared memory"),
            lambda case: case.is_shared,
        ),
        option("--threads", "fewer where both sides compute on the same CPUs; see what else runs"),
        Change([], "run diagnose_transport: it says whether the transport is the problem at all"),
    ],
)
def transport(this: CallsRule, case: CallsCase) -> Finding | None:
    """Sending, waiting for transport, or receiving takes more than 30 % of the calls' time."""
    over = [(case.share(stage), stage) for stage in ("send", "wait", "receive")]
    broken = sorted((each for each in over if this.exceeds(each[0], "transport")), reverse=True)
    if not broken:
        return None
    evidence = [this.broke(_share_of(case, stage), share, "transport") for share, stage in broken]
    names = " and ".join(stage for _, stage in broken)
    saved_ns = sum(case.report.overall.stages_ns[_PLACE[stage]] for _, stage in broken)
    title = f"{names.capitalize()} takes {_percent(sum(share for share, _ in broken))} of the time"
    return replace(
        _gains(this, case, title, _exactly(saved_ns), evidence), causes=_why_slow(this, case, saved_ns)
    )


def _why_slow(this: CallsRule, case: CallsCase, dur_ns: float) -> list[str]:
    """The causes of the rule that this session does not rule out, preceded by what an empty call shows."""
    tcp, copies, server = this.causes
    facts, calls = case.report.facts, case.report.overall.calls
    empty_ns = facts.latency_ns
    causes = [server] if facts.receive_has_wait else []
    if case.is_local and case.is_shared:
        if empty_ns and dur_ns > _WAITS * empty_ns * calls:
            return [
                f"processes that wait for a CPU: an empty call takes {empty_ns / NS_PER_MS:.3f} ms here, and "
                f"these stages {dur_ns / calls / NS_PER_MS:.3f} ms a call",
                *causes,
            ]
        return causes
    return [copies, *causes] if case.is_local else [tcp, copies, *causes]


UNPROTECTED = (
    "one call a layer, but this gives up the protection: hidden states, norms, scores and the key-value "
    "cache are the GPU side's; only where that side may read everything"
)


def _protected(flag: str, text: str, method: str) -> Advice:
    """A stage that leaves hidden states and the cache where they are, unless it or a later one is used."""
    return Advice(
        [flag],
        text,
        make=lambda case: (
            Change([flag], text)
            if case.is_split_model and not case.has(method, "AttentionLinear", "fused_layer")
            else None
        ),
    )


@rule(
    limits={"calls": Limit(50, "", _REQUIREMENT)},
    causes=["a call for each product of each layer"],
    changes=[
        _protected(
            "--stage fused_attention",
            "attention in one call; scores and softmax are made on the GPU side",
            "Attention",
        ),
        _protected(
            "--stage fused_blocks",
            "three calls a layer; norms, residuals and the cache stay protected",
            "AttentionLinear",
        ),
        Change([], "batch several operations into one call"),
        Change([], "keep what is computed repeatedly"),
        Advice(
            ["--stage fused_layer"],
            UNPROTECTED,
            make=lambda case: (
                Change(["--stage fused_layer"], UNPROTECTED)
                if case.is_split_model and not case.has("fused_layer")
                else None
            ),
        ),
    ],
)
def many_calls(this: CallsRule, case: CallsCase) -> Finding | None:
    """More than 50 calls: their cost independent of their bytes could be saved."""
    calls = case.report.overall.calls
    if not this.exceeds(calls, "calls"):
        return None
    layer = case.report.layer
    pattern = "" if layer is None else f"; {len(layer.steps)} calls are repeated {layer.repeats} times"
    fixed = case.costs.fixed()
    evidence = [this.broke(f"calls{pattern}{_empty_call(case)}", calls, "calls")]
    title = f"Many calls ({calls})"
    if fixed is None:
        return this.finding(title, evidence, GAIN)
    return _gains(this, case, title, Interval(*(each * calls for each in fixed)), evidence)


def _empty_call(case: CallsCase) -> str:
    """What one costs among these calls, and at the session's start where that was far less."""
    fixed, begun_ns = case.costs.fixed(), case.report.facts.latency_ns
    if fixed is None:
        return ""
    fixed_ns = fixed.most
    says = f"; one without a byte costs {fixed_ns / NS_PER_MS:.3f} ms"
    if begun_ns and fixed_ns > _WAITS * begun_ns:
        says += f" among these calls and took {begun_ns / NS_PER_MS:.3f} ms when the session began"
    return says


@rule(
    limits={
        "bytes_per_call": Limit(1.0, "MB", "measured: from 1 MB on, copies cost more than waking up"),
        "half_precision": _WORTH,
    },
    causes=["float32 on the way"],
    changes=[option("LLAMA_DTYPE=bfloat16", "send half precision: half the bytes, except for token ids")],
)
def half_precision(this: CallsRule, case: CallsCase) -> Finding | None:
    """Large arrays that are not in half precision yet."""
    totals, costs = case.report.overall, case.costs
    mean_mb = (totals.sent_bytes + totals.received_bytes) / max(1, totals.calls) / MB
    if not this.exceeds(mean_mb, "bytes_per_call") or not costs.may_be_wide:
        return None
    saved = costs.saved_by_halving()
    evidence = [this.broke("mean of a call, sent and received", mean_mb, "bytes_per_call")]
    title = f"Large data ({mean_mb:.1f} MB a call) in full precision"
    if saved is None:
        return this.finding(title, evidence, GAIN)
    evidence.append(
        this.broke("share of the time in half of the bytes", case.saved(saved.least), "half_precision")
    )
    return _gains(this, case, title, saved, evidence)


@rule(
    limits={"shared_memory": _WORTH},
    causes=["arrays go through a socket, copied on both sides"],
    changes=[option("--payload shared", "one copy into memory that both processes have")],
)
def shared_memory(this: CallsRule, case: CallsCase) -> Finding | None:
    """Arrays go through a socket although both processes are on one machine."""
    saved = case.costs.saved_by_sharing()
    if saved is None or not this.exceeds(case.saved(saved.least), "shared_memory"):
        return None
    share = case.saved(saved.least)
    evidence = [this.broke("share of the time beyond two copies of each byte", share, "shared_memory")]
    return _gains(this, case, "Arrays go through a socket", saved, evidence)


@rule(
    limits={"repeated_kv": _WORTH},
    causes=["keys and values are repeated to the number of query heads before they are sent"],
    changes=[option("--no-repeat-kv", "send each head of keys and values once; the server repeats them")],
)
def repeated_kv(this: CallsRule, case: CallsCase) -> Finding | None:
    """Keys and values are sent several times."""
    attention = case.report.attention
    repeats = attention.repeats or 1
    if repeats < 2:
        return None
    saved_bytes = 2 * attention.keys_bytes * (1 - 1 / repeats)
    title = f"Each head of keys and values is sent {repeats} times"
    return _fewer_bytes(this, case, title, Saved(sent_bytes=saved_bytes))


@rule(
    limits={"unfused_attention": _WORTH},
    causes=["scores come back, and probabilities go out again: they grow with the square of the tokens"],
    changes=[option("--stage fused_attention", "one call for both products and the softmax between them")],
)
def unfused_attention(this: CallsRule, case: CallsCase) -> Finding | None:
    """Attention's scores travel both ways."""
    attention = case.report.attention
    if not attention.pairs:
        return None
    scores = attention.scores_bytes
    title = "Attention is two calls: scores travel there and back"
    return _fewer_bytes(this, case, title, Saved(attention.pairs, scores, scores))


class Saved(NamedTuple):
    """Calls and bytes that a change makes unnecessary."""

    calls: int = 0
    sent_bytes: float = 0.0
    received_bytes: float = 0.0


def _fewer_bytes(this: CallsRule, case: CallsCase, title: str, saved: Saved) -> Finding | None:
    """A change that saves this many bytes and calls."""
    totals, saved_bytes = case.report.overall, saved.sent_bytes + saved.received_bytes
    of_all = saved_bytes / max(1, totals.sent_bytes + totals.received_bytes)
    time = case.costs.saved(*saved)
    if time is None:
        if not this.exceeds(of_all, this.name):
            return None
        return this.finding(title, [this.broke("share of the bytes", of_all, this.name)], GAIN)
    if not this.exceeds(case.saved(time.least), this.name):
        return None
    figure = f"share of the time in {saved_bytes / MB:.1f} MB, {_percent(of_all)} of the bytes"
    return _gains(this, case, title, time, [this.broke(figure, case.saved(time.least), this.name)])


# Findings of different time: of different stages, or of calls and of bytes.
APART: tuple[set[str], ...] = (
    {"serialization", "transport"},
    *({"many_calls", of_bytes} for of_bytes in ("half_precision", "shared_memory", "repeated_kv")),
)
RULES: tuple[CallsRule, ...] = (
    *(serialization, transport, many_calls, half_precision),
    *(shared_memory, repeated_kv, unfused_attention),
)


def judge(report: CallsReport) -> CallsReport:
    """The report with its findings, the costliest first."""
    if not report.overall.calls:
        return report
    costs = Costs(report)
    found = find(RULES, CallsCase(report, costs))
    return replace(report, findings=_overlapping(found), unjudged=costs.unknown)


def _overlapping(found: Sequence[Finding]) -> list[Finding]:
    """Each with the names of the others that count time of its own."""
    counting = [one.name for one in found if one.cost_s]
    return [
        replace(
            one, overlaps=[name for name in counting if name != one.name and {name, one.name} not in APART]
        )
        if one.cost_s
        else one
        for one in found
    ]
