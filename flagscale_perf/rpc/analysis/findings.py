"""Rules for what slows the calls, each with the gain that a change would bring, calculated from this
session's own calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from itertools import combinations
from math import isclose

from flagscale_perf.analysis.rules import Evidence, Finding, Rule, find, rule, unless
from flagscale_perf.rpc.analysis.case import PLACE, CallsCase
from flagscale_perf.rpc.analysis.costs import Costs, Interval
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.unexplained import unexplained
from flagscale_perf.rpc.figures import MIB, method_name
from flagscale_perf.rpc.stages import stage_times
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.limits import Limit

GAIN = "calls in the same time"
_REQUIREMENT = "the requirement of this log"
WORTH = Limit(0.01, "share", "ours: less is not worth a change")
_SAME = 1e-3  # ends of an interval nearer to one another are one figure
_WAITS = 3  # times an empty call: what calls through shared memory take beyond it is no transport


CallsRule = Rule[CallsCase]


def gains(
    this: CallsRule, case: CallsCase, title: str, saved: Interval, evidence: Sequence[Evidence]
) -> Finding:
    """A finding with its cost as a share and what would be gained without it; intervals where `saved` is."""
    whole, wall = case.report.overall.total_ns, case.report.wall_ns
    saved = Interval(*(each * case.part for each in saved))
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


def percent(share: float) -> str:
    """Text such as `41.2 %`."""
    return f"{100 * share:.1f} %"


def _share_of(case: CallsCase, stage: str) -> str:
    """The figure's name, with the one of the slowest calls in which the stage took longest."""
    place = PLACE[stage]
    call = max(case.report.slowest, key=lambda one: stage_times(one)[place] or 0)
    took, whole = (stage_times(call)[place] or 0) / NS_PER_MS, call.total_ns / NS_PER_MS
    example = f"call {call.number}, {call.method}: {took:.3f} of {whole:.3f} ms"
    return f"share of the time in {stage} ({example})"


@rule(
    limits={"serialize": Limit(0.30, "share", _REQUIREMENT)},
    causes=["arrays are copied into a message, byte by byte: msgpack, tobytes"],
    changes=[
        unless(
            "put arrays into shared memory; the message holds where they are", lambda case: case.is_shared
        ),
        unless(
            "send arrays as frames of their own, not inside a message",
            lambda case: case.report.facts.payload in ("shared", "frames"),
        ),
        unless("bfloat16 for float32 halves the bytes", lambda case: not case.costs.may_be_wide),
    ],
)
def serialization(this: CallsRule, case: CallsCase) -> Finding | None:
    """Serializing takes more than 30 % of the calls' time."""
    share = case.share("serialize")
    if not this.exceeds(case.lasting("serialize"), "serialize"):
        return None
    saved_ns = case.report.overall.stages_ns[PLACE["serialize"]]
    evidence = [this.broke(_share_of(case, "serialize"), share, "serialize")]
    title = f"Serialization takes {percent(share)} of the time"
    return gains(this, case, title, _exactly(saved_ns), evidence)


@rule(
    limits={
        "transport": Limit(0.30, "share", _REQUIREMENT),
        "a_call": Limit(0.1, "ms", "ours: a call of a few bytes may take as long on its way"),
    },
    causes=[
        "TCP where both processes are on one machine",
        "copies in the socket: the time follows the bytes, not the calls",
        "the server, where Recv holds its time, too",
    ],
    changes=[
        unless("where both processes are on one machine: IPC, not TCP", lambda case: case.is_local),
        unless("large arrays cost least in shared memory", lambda case: case.is_shared),
        "fewer threads where both sides compute on the same CPUs; see what else runs",
    ],
)
def transport(this: CallsRule, case: CallsCase) -> Finding | None:
    """Sending, waiting for transport, or receiving takes more than 30 % of the calls' time. Where receiving
    has the server's time, too, only what the bytes of large calls may take of it counts.
    """
    broken, totals = _long_on_the_way(this, case), case.report.overall
    whole = sum(share for share, _ in broken)
    saved_ns = whole * totals.total_ns
    if not this.exceeds(saved_ns / totals.calls / NS_PER_MS, "a_call"):
        return None
    evidence = [this.broke(_share_of(case, stage), share, "transport") for share, stage in broken]
    names = " and ".join(stage for _, stage in broken)
    title = f"{names.capitalize()} takes {percent(whole)} of the time"
    saved = _exactly(saved_ns)
    if case.beyond is not None and any(stage == "receive" for _, stage in broken):
        title += ", in calls of large arrays"
        saved = Interval(0.0, saved_ns)  # their bytes must be moved, and the server may have worked on them
    return replace(gains(this, case, title, saved, evidence), causes=_why_slow(this, case, saved_ns))


def _long_on_the_way(this: CallsRule, case: CallsCase) -> list[tuple[float, str]]:
    """The stages beyond the limit, each after its share, the longest first."""
    stages = [
        stage for stage in ("send", "wait", "receive") if this.exceeds(case.lasting(stage), "transport")
    ]
    over = [(case.share(stage), stage) for stage in stages]
    if case.beyond is not None:
        over = [each for each in over if each[1] == "send"]
        over.append((case.saved(case.beyond.bytes_ns * case.scale), "receive"))
    return sorted((each for each in over if this.exceeds(each[0], "transport")), reverse=True)


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
    limits={
        "unexplained": Limit(0.30, "share", "ours: as much as the requirement lets the transport take"),
    },
    causes=[
        "the server's own work, or a wait in it: a lock, a disk, another service, sleep",
        "the network: a method that returns at once is as slow then; if it is not, it is the server",
    ],
    changes=["time the method in the server: what it takes there is no transport"],
)
def server(this: CallsRule, case: CallsCase) -> Finding | None:
    """More than 30 % of the calls' time is waited for replies that calls of as many bytes have sooner."""
    beyond = case.beyond
    if beyond is None or not beyond.methods_ns:
        return None
    over_ns = sum(beyond.methods_ns.values()) * case.scale
    share = case.saved(over_ns)
    if not this.exceeds(share, "unexplained"):
        return None
    name, peer, wall = beyond.dearest, beyond.peer, case.report.wall_ns
    a_call = beyond.methods_ns[name] * case.scale / max(1, case.report.totals.of(name).calls) / NS_PER_MS
    held = "no call of as few bytes is fast"
    if peer is not None:
        whose = "other calls of it" if peer.method == name else f"those of {method_name(peer.method)}"
        held = f"{whose} with as many bytes take {peer.wait_ns / NS_PER_MS:.3f} ms"
    figure = (
        f"share of the time that bytes do not explain ({method_name(name)}: {a_call:.3f} ms a call; {held})"
    )
    # One connection has one network: where another method's replies come at once, it is the server.
    is_decided = case.is_local or (peer is not None and peer.method != name)
    whose = "the server" if is_decided else "the server or the network"
    title = f"{method_name(name)} waits for {whose}, not for its bytes"
    return replace(
        this.finding(title, [this.broke(figure, share, "unexplained")], GAIN),
        cost_s=over_ns / NS_PER_S,
        cost_share=over_ns / wall if wall else None,
        causes=list(this.causes[:1] if is_decided else this.causes),
    )


@rule(
    limits={
        "deserialize": Limit(0.20, "share", "ours: more than a fifth is worth another form of the result"),
        "deserialize_ms": Limit(0.1, "ms", "ours: less is Python's own for any result"),
    },
    causes=["numbers are made of text (JSON), or objects one by one (msgpack, pickle), on one CPU"],
    changes=[
        unless(
            "send arrays as bytes and read them in place: numpy.frombuffer, torch.frombuffer",
            lambda case: case.is_shared or case.report.facts.payload == "frames",
        ),
        "ask for less, or parse while the next call is under way",
    ],
)
def deserialization(this: CallsRule, case: CallsCase) -> Finding | None:
    """Making a result of the reply takes more than 20 % of the calls' time."""
    totals, share = case.report.overall, case.share("deserialize")
    took_ns = totals.stages_ns[PLACE["deserialize"]]
    mean_ms = took_ns / max(1, totals.calls) / NS_PER_MS
    if not (
        this.exceeds(case.lasting("deserialize"), "deserialize") and this.exceeds(mean_ms, "deserialize_ms")
    ):
        return None
    evidence = [
        this.broke(_share_of(case, "deserialize"), share, "deserialize"),
        this.broke("mean of a call", mean_ms, "deserialize_ms"),
    ]
    title = f"Deserialization takes {percent(share)} of the time"
    return gains(this, case, title, Interval(0.0, took_ns), evidence)


@rule(
    limits={"calls": Limit(50, "", _REQUIREMENT)},
    causes=["a call for each small operation"],
    changes=[
        "batch several operations into one call",
        "keep what is computed repeatedly",
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
    return gains(this, case, title, Interval(*(each * calls for each in fixed)), evidence)


def _empty_call(case: CallsCase) -> str:
    """The cost of an empty call in this session, and at its start where that was far less."""
    fixed, begun_ns = case.costs.fixed(), case.report.facts.latency_ns
    if fixed is None:
        return ""
    fixed_ns = fixed.most
    says = f"; among these calls, an empty one takes up to {fixed_ns / NS_PER_MS:.3f} ms"
    if begun_ns and fixed_ns > _WAITS * begun_ns:
        says += f", and took {begun_ns / NS_PER_MS:.3f} ms when the session began"
    return says


@rule(
    limits={
        "bytes_per_call": Limit(1.0, "MiB", "measured: from 1 MiB on, copies cost more than waking up"),
        "half_precision": WORTH,
    },
    causes=["float32 on the way"],
    changes=["send half precision: half the bytes"],
)
def half_precision(this: CallsRule, case: CallsCase) -> Finding | None:
    """Large arrays that are not in half precision yet."""
    totals, costs = case.report.overall, case.costs
    mean_mb = totals.moved_bytes / max(1, totals.calls) / MIB
    if not this.exceeds(mean_mb, "bytes_per_call") or not costs.may_be_wide:
        return None
    saved = costs.saved_by_halving()
    evidence = [this.broke("mean of a call, sent and received", mean_mb, "bytes_per_call")]
    title = f"Large data ({mean_mb:.1f} MiB a call) in full precision"
    if saved is None:
        return this.finding(title, evidence, GAIN)
    evidence.append(
        this.broke("share of the time in half of the bytes", case.saved(saved.least), "half_precision")
    )
    return gains(this, case, title, saved, evidence)


@rule(
    limits={"shared_memory": WORTH},
    causes=["arrays go through a socket, copied on both sides"],
    changes=["one copy into memory that both processes have"],
)
def shared_memory(this: CallsRule, case: CallsCase) -> Finding | None:
    """Arrays go through a socket although both processes are on one machine."""
    saved = case.costs.saved_by_sharing()
    if saved is None or not this.exceeds(case.saved(saved.least), "shared_memory"):
        return None
    share = case.saved(saved.least)
    evidence = [this.broke("share of the time beyond two copies of each byte", share, "shared_memory")]
    return gains(this, case, "Arrays go through a socket", saved, evidence)


# Findings of different time: of different stages, or of calls and of bytes.
APART: tuple[set[str], ...] = (
    *map(set, combinations(("serialization", "transport", "server", "deserialization"), 2)),
    {"many_calls", "half_precision"},
    {"many_calls", "shared_memory"},
)
RULES: tuple[CallsRule, ...] = (
    serialization,
    transport,
    server,
    deserialization,
    many_calls,
    half_precision,
    shared_memory,
)


def judge(
    report: CallsReport, rules: Sequence[CallsRule] = RULES, apart: Sequence[set[str]] = APART
) -> CallsReport:
    """The report with its findings, the costliest first.

    Args:
        report: without findings, or with those of other rules.
        rules: an application that knows more of its calls has its own.
        apart: pairs of findings that do not count the same time.
    """
    if not report.overall.calls:
        return report
    costs = Costs(report)
    beyond = unexplained(costs.calls) if report.facts.receive_has_wait else None
    case = CallsCase(report, costs, beyond)
    found = find(rules, case)
    if case.part < 1:
        costs.unknown.append(_meanwhile(case))
    judged = copy(report)
    judged.findings, judged.unjudged = _overlapping(found, apart), costs.unknown
    return judged


def _meanwhile(case: CallsCase) -> str:
    first = len(case.report.first)
    return (
        "whether calls that overlap are the bottleneck in all of the session: replayed, its first"
        f" {first:,} calls would be done sooner by {percent(case.part)} of what carrying them saves, which is"
        " taken for all gains"
    )


def _overlapping(found: Sequence[Finding], apart: Sequence[set[str]]) -> list[Finding]:
    """Each with the names of the others that count time of its own."""
    counting = [one.name for one in found if one.cost_s]
    return [
        replace(
            one, overlaps=[name for name in counting if name != one.name and {name, one.name} not in apart]
        )
        if one.cost_s
        else one
        for one in found
    ]
