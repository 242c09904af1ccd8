"""The findings of a split model's calls: the monitor's own with the options of these programs to change them,
and two that know attention.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from split_inference.traffic import REVEALS

from diagnosis.attention import attention_in
from flagscale_perf.analysis.rules import Advice, Change, Finding, rule, rules_in, unless
from flagscale_perf.rpc.analysis import findings
from flagscale_perf.rpc.analysis.case import CallsCase
from flagscale_perf.rpc.analysis.costs import Interval
from flagscale_perf.rpc.analysis.findings import GAIN, WORTH, CallsRule, gains, judge, percent
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.facts import PROBE
from flagscale_perf.rpc.figures import MIB

UNPROTECTED = (
    "one call a layer, but this gives up the protection: hidden states, norms, scores and the key-value "
    "cache are the GPU side's; only where that side may read everything"
)
_SHARED = "--payload shared"
_NARROW = "LLAMA_DTYPE=bfloat16"
APART = (*findings.APART, {"many_calls", "repeated_kv"})


def judge_split(report: CallsReport) -> CallsReport:
    """With the findings of these rules where the calls are a split model's; any other report as it is."""
    methods = set(report.totals.methods)
    is_split = methods <= REVEALS.keys() and not methods.isdisjoint({"BatchLinear", "fused_layer"})
    if report.facts.role == PROBE or not is_split:
        return report
    return judge(report, rules_in(sys.modules[__name__]), APART)


def _is_shared(case: CallsCase) -> bool:
    return case.is_shared


def _is_narrow(case: CallsCase) -> bool:
    return not case.costs.may_be_wide


serialization = replace(
    findings.serialization,
    changes=[
        unless(
            Change([_SHARED], "put arrays into shared memory; the message holds where they are"), _is_shared
        ),
        unless(
            Change(["--payload frames"], "send arrays as frames of their own, not inside a message"),
            lambda case: case.report.facts.payload in ("shared", "frames"),
        ),
        unless(Change([_NARROW], "bfloat16 for float32 halves the bytes"), _is_narrow),
    ],
)
transport = replace(
    findings.transport,
    changes=[
        unless(
            Change(["LLAMA_IPC_PATH=ipc:///..."], "where both processes are on one machine: IPC, not TCP"),
            lambda case: case.is_local,
        ),
        unless(Change([_SHARED], "large arrays cost least in shared memory"), _is_shared),
        Change(["--threads"], "fewer where both sides compute on the same CPUs; see what else runs"),
        Change([], "run diagnose_transport.py: it says whether the transport is the problem at all"),
    ],
)


def _stage(flag: str, text: str, unless_called: frozenset[str]) -> Advice:
    """A stage to change to, unless it or one that fuses more is in use."""
    return unless(Change([flag], text), lambda case: not unless_called.isdisjoint(case.report.totals.methods))


_BLOCKS = frozenset({"AttentionLinear", "fused_layer"})
many_calls = replace(
    findings.many_calls,
    causes=["a call for each product of each layer"],
    changes=[
        _stage(
            "--stage fused_attention",
            "attention in one call; scores and softmax are made on the GPU side",
            _BLOCKS | {"Attention"},
        ),
        _stage(
            "--stage fused_blocks",
            "three calls a layer; norms, residuals and the cache stay protected",
            _BLOCKS,
        ),
        *findings.many_calls.changes,
        _stage("--stage fused_layer", UNPROTECTED, frozenset({"fused_layer"})),
    ],
)
half_precision = replace(
    findings.half_precision,
    changes=[Change([_NARROW], "send half precision: half the bytes, except for token ids")],
)
shared_memory = replace(
    findings.shared_memory,
    changes=[Change([_SHARED], "one copy into memory that both processes have")],
)


@rule(
    limits={"repeated_kv": WORTH},
    causes=["keys and values are repeated to the number of query heads before they are sent"],
    changes=[Change(["--no-repeat-kv"], "send each head of keys and values once; the server repeats them")],
)
def repeated_kv(this: CallsRule, case: CallsCase) -> Finding | None:
    """Keys and values are sent several times."""
    attention = attention_in(case.report.source)
    if attention.repeats < 2:
        return None
    saved_bytes = 2 * attention.keys_bytes * (1 - 1 / attention.repeats)
    title = f"Each head of keys and values is sent {attention.repeats} times"
    return _fewer_bytes(this, case, title, (0, saved_bytes, 0.0))


@rule(
    limits={"unfused_attention": WORTH},
    causes=["scores come back, and probabilities go out again: they grow with the square of the tokens"],
    changes=[Change(["--stage fused_attention"], "one call for both products and the softmax between them")],
)
def unfused_attention(this: CallsRule, case: CallsCase) -> Finding | None:
    """Attention's scores travel both ways."""
    attention = attention_in(case.report.source)
    if not attention.pairs:
        return None
    scores = attention.scores_bytes
    title = "Attention is two calls: scores travel there and back"
    return _fewer_bytes(this, case, title, (attention.pairs, scores, scores))


def _fewer_bytes(
    this: CallsRule, case: CallsCase, title: str, saved: tuple[int, float, float]
) -> Finding | None:
    """A change that saves so many calls, bytes sent and bytes received."""
    totals, saved_bytes = case.report.overall, saved[1] + saved[2]
    of_all = saved_bytes / max(1, totals.sent_bytes + totals.received_bytes)
    time: Interval | None = case.costs.saved(*saved)
    if time is None:
        if not this.exceeds(of_all, this.name):
            return None
        return this.finding(title, [this.broke("share of the bytes", of_all, this.name)], GAIN)
    if not this.exceeds(case.saved(time.least), this.name):
        return None
    figure = f"share of the time in {saved_bytes / MIB:.1f} MiB, {percent(of_all)} of the bytes"
    return gains(this, case, title, time, [this.broke(figure, case.saved(time.least), this.name)])
