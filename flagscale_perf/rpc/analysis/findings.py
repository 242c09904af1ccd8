"""Rules for what slows the calls, each with the gain that a change would bring, calculated from this
session's own calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from flagscale_perf.analysis.rules import Case, Change, Evidence, Finding, Limit, Rule, find, rule, unless
from flagscale_perf.rpc.analysis.costs import Costs
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.figures import MB
from flagscale_perf.rpc.stages import STAGES, stage_times
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

GAIN = "calls in the same time"
_REQUIREMENT = "the requirement of this log"
_WORTH = Limit(0.01, "share", "ours: less is not worth a change")
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

    def saved(self, saved_ns: float) -> float:
        """The saving as a share of the calls' time."""
        whole = self.report.overall.total_ns
        return min(1.0, saved_ns / whole) if whole else 0.0


CallsRule = Rule[CallsCase]


def _gains(
    this: CallsRule, case: CallsCase, title: str, saved_ns: float, evidence: Sequence[Evidence]
) -> Finding:
    """The cost as a share, and what would be gained without it."""
    whole, wall = case.report.overall.total_ns, case.report.wall_ns
    left = whole - saved_ns
    return replace(
        this.finding(title, list(evidence), GAIN),
        cost_s=saved_ns / NS_PER_S,
        cost_share=saved_ns / wall if wall else None,
        gain=saved_ns / left if left > 0 else None,
    )


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
            Change(["--payload shared"], "put arrays into shared memory; the message holds where they are"),
            lambda case: case.is_shared,
        ),
        unless(
            Change(["--payload frames"], "send arrays as frames of their own, not inside a message"),
            lambda case: case.report.facts.payload in ("shared", "frames"),
        ),
        unless(Change(["LLAMA_DTYPE=bfloat16"], "halve the bytes"), lambda case: not case.costs.may_be_wide),
    ],
)
def serialization(this: CallsRule, case: CallsCase) -> Finding | None:
    """Serializing takes more than 30 % of the calls' time."""
    share = case.share("serialize")
    if not this.exceeds(share, "serialize"):
        return None
    saved_ns = case.report.overall.stages_ns[_PLACE["serialize"]]
    evidence = [this.broke(_share_of(case, "serialize"), share, "serialize")]
    return _gains(this, case, f"Serialization takes {_percent(share)} of the time", saved_ns, evidence)


@rule(
    limits={"transport": Limit(0.30, "share", _REQUIREMENT)},
    causes=[
        "TCP where both processes are on one machine",
        "copies in the socket: the time follows the bytes, not the calls",
        "the server, where Recv holds its time, too",
    ],
    changes=[
        unless(
            Change(["LLAMA_IPC_PATH=ipc:///..."], "where both processes are on one machine: IPC, not TCP"),
            lambda case: case.is_local,
        ),
        unless(
            Change(["--payload shared"], "large arrays cost least in shared memory"),
            lambda case: case.is_shared,
        ),
        Change(["--threads"], "lower it where both sides compute on the same CPUs, and see what else runs"),
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
    return replace(_gains(this, case, title, saved_ns, evidence), causes=_why_slow(this, case, saved_ns))


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


@rule(
    limits={"calls": Limit(50, "", _REQUIREMENT)},
    causes=["a call for each product of each layer"],
    changes=[
        Change(["--stage fused_layer"], "fuse operators: fewer calls for each layer"),
        Change([], "batch several operations into one call"),
        Change([], "keep what is computed repeatedly"),
    ],
)
def many_calls(this: CallsRule, case: CallsCase) -> Finding | None:
    """More than 50 calls: their cost independent of their bytes could be saved."""
    calls = case.report.overall.calls
    if not this.exceeds(calls, "calls"):
        return None
    layer = case.report.layer
    pattern = "" if layer is None else f"; {len(layer.steps)} calls are repeated {layer.repeats} times"
    fixed_ns = case.costs.fixed_ns
    evidence = [this.broke(f"calls{pattern}{_empty_call(case)}", calls, "calls")]
    title = f"Many calls ({calls})"
    if fixed_ns is None:
        return this.finding(title, evidence, GAIN)
    return _gains(this, case, title, fixed_ns * calls, evidence)


def _empty_call(case: CallsCase) -> str:
    """What one costs among these calls, and at the session's start where that was far less."""
    fixed_ns, begun_ns = case.costs.fixed_ns, case.report.facts.latency_ns
    if fixed_ns is None:
        return ""
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
    changes=[Change(["LLAMA_DTYPE=bfloat16"], "send half precision: half the bytes, except for token ids")],
)
def half_precision(this: CallsRule, case: CallsCase) -> Finding | None:
    """Large arrays that are not in half precision yet."""
    totals, costs = case.report.overall, case.costs
    mean_mb = (totals.sent_bytes + totals.received_bytes) / max(1, totals.calls) / MB
    if not this.exceeds(mean_mb, "bytes_per_call") or not costs.may_be_wide:
        return None
    saved_ns = costs.saved_by_halving()
    evidence = [this.broke("mean of a call, sent and received", mean_mb, "bytes_per_call")]
    title = f"Large data ({mean_mb:.1f} MB a call) in full precision"
    if saved_ns is None:
        return this.finding(title, evidence, GAIN)
    evidence.append(
        this.broke("share of the time in half of the bytes", case.saved(saved_ns), "half_precision")
    )
    return _gains(this, case, title, saved_ns, evidence)


@rule(
    limits={"shared_memory": _WORTH},
    causes=["arrays go through a socket, copied on both sides"],
    changes=[Change(["--payload shared"], "one copy into memory that both processes have")],
)
def shared_memory(this: CallsRule, case: CallsCase) -> Finding | None:
    """Arrays go through a socket although both processes are on one machine."""
    saved_ns = case.costs.saved_by_sharing()
    if saved_ns is None or not this.exceeds(case.saved(saved_ns), "shared_memory"):
        return None
    share = case.saved(saved_ns)
    evidence = [this.broke("share of the time beyond one copy of each byte", share, "shared_memory")]
    return _gains(this, case, "Arrays go through a socket", saved_ns, evidence)


@rule(
    limits={"repeated_kv": _WORTH},
    causes=["keys and values are repeated to the number of query heads before they are sent"],
    changes=[Change(["--no-repeat-kv"], "send each head of keys and values once; the server repeats them")],
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
    changes=[Change(["--stage fused_attention"], "one call for both products and the softmax between them")],
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
    saved_ns = case.costs.saved_by_bytes(saved.sent_bytes, saved.received_bytes)
    if saved_ns is None:
        if not this.exceeds(of_all, this.name):
            return None
        return this.finding(title, [this.broke("share of the bytes", of_all, this.name)], GAIN)
    saved_ns += saved.calls * (case.costs.fixed_ns or 0.0)
    if not this.exceeds(case.saved(saved_ns), this.name):
        return None
    figure = f"share of the time in {saved_bytes / MB:.1f} MB, {_percent(of_all)} of the bytes"
    return _gains(this, case, title, saved_ns, [this.broke(figure, case.saved(saved_ns), this.name)])


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
    return replace(report, findings=found, unjudged=costs.unknown)
