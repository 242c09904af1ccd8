"""The analysis of a performance log in the layout that its users know: a page of text, 100 columns wide."""

from __future__ import annotations

from collections.abc import Iterator

from diagnosis.words import Words
from flagscale_perf.analysis.rules import Evidence, Finding
from flagscale_perf.rpc.analysis.report import CallsReport
from flagscale_perf.rpc.analysis.sums import TOP
from flagscale_perf.rpc.figures import KIB, MIB, method_name, throughput
from flagscale_perf.rpc.stages import ALL_STAGES, stage_times
from flagscale_perf.rpc.totals import Totals, tenths
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.units import UNKNOWN, percent, printable

_WIDTH = 100
_RULE, _LINE = "=" * _WIDTH, "-" * _WIDTH
_FIRST = ("serialize", "send", "receive", "deserialize")  # what every log has, in this order


def layout(found: CallsReport, words: Words) -> str:
    """The whole page, with recommendations in these words."""
    lines = [
        _RULE,
        f"{'':30}ZeroMQ Performance Analysis Report{'':36}",
        _RULE,
        *_overall(found.overall),
        *_by_method(found),
        *_bottlenecks(found),
        *_recommendations(found, words),
        _RULE,
    ]
    return "".join(f"{printable(line)}\n" for line in lines)


def _overall(totals: Totals) -> Iterator[str]:
    calls = max(1, totals.calls)
    moved = totals.sent_bytes + totals.received_bytes
    yield from ("", "OVERALL STATISTICS", _LINE)
    yield f"{'Total RPC Calls:':<22}{totals.calls}"
    yield f"{'Total Time:':<22}{totals.total_ns / NS_PER_MS:.2f} ms"
    yield f"{'Average Time/Call:':<22}{totals.total_ns / calls / NS_PER_MS:.3f} ms"
    yield from ("", "Time Breakdown (Average per call):")
    for title, took_ns, share in _breakdown(totals):
        yield f"  {title + ':':<20}{took_ns / calls / NS_PER_MS:>7.3f} ms  ({100 * share:>5.1f}%)"
    yield from ("", "Data Transfer:")
    for title, size in (("Sent", totals.sent_bytes), ("Received", totals.received_bytes)):
        yield f"  {f'Total {title}:':<18}{size / MIB:>9.2f} MB  ({size / calls / KIB:.2f} KB/call)"
    yield f"  {'Total:':<18}{moved / MIB:>9.2f} MB"
    if totals.total_ns:
        yield f"  {'Throughput:':<20}{moved / MIB * NS_PER_S / totals.total_ns:.2f} MB/s"


def _breakdown(totals: Totals) -> Iterator[tuple[str, int, float]]:
    """Title, time and share of each stage, adding to 100.0 %: first the stages that every log has."""
    shares = tenths(totals.stages_ns)
    stages = {
        stage.name: (stage.name.capitalize(), totals.stages_ns[place], shares[place])
        for place, stage in enumerate(ALL_STAGES)
    }
    for name in _FIRST:
        yield stages.pop(name)
    yield from (stage for stage in stages.values() if stage[1])


def _by_method(found: CallsReport) -> Iterator[str]:
    yield from ("", "STATISTICS BY METHOD", _LINE)
    yield (
        f"{'Method':<20} {'Calls':>5}    Avg Time(ms)   Total Time(ms)    Avg Sent(KB)    Avg Recv(KB)"
        "   % of Total"
    )
    yield _LINE
    for name, totals, share in found.by_method():
        mean_ms, total_ms = totals.total_ns / totals.calls / NS_PER_MS, totals.total_ns / NS_PER_MS
        sent, received = totals.sent_bytes / totals.calls / KIB, totals.received_bytes / totals.calls / KIB
        yield (
            f"{method_name(name):<20} {totals.calls:>5}{mean_ms:>15.3f}{total_ms:>18.3f}{sent:>15.2f}"
            f"{received:>16.2f}{100 * share:>12.1f}%"
        )


def _bottlenecks(found: CallsReport) -> Iterator[str]:
    yield from ("", "BOTTLENECK ANALYSIS", _LINE, "", f"Top {TOP} Slowest Calls:")
    # Beside the requirement's four what else these calls have, so that the stages add up to the total.
    more = [
        place
        for place, stage in enumerate(ALL_STAGES)
        if stage.name not in _FIRST and found.overall.stages_ns[place]
    ]
    titles = "".join(f"{ALL_STAGES[place].name.capitalize():>11}" for place in more)
    yield f"{'ID':<9}{'Method':<21}Total(ms)    Serialize        Send      Recv    Deserialize{titles}"
    yield _LINE
    for call in found.slowest:
        times = [
            each / NS_PER_MS
            for each in (call.total_ns, call.serialize_ns, call.send_ns, call.receive_ns, call.deserialize_ns)
        ]
        total, serialize, send, receive, deserialize = times
        told = [stage_times(call)[place] for place in more]
        others = "".join(f"{UNKNOWN:>11}" if ns is None else f"{ns / NS_PER_MS:>11.3f}" for ns in told)
        yield (
            f"{call.number:<9}{method_name(call.method):<21}{total:>8.3f}{serialize:>13.3f}{send:>11.3f}"
            f"{receive:>10.3f}{deserialize:>15.3f}{others}"
        )
    yield from ("", f"Top {TOP} Largest Data Transfers:")
    yield f"{'ID':<9}{'Method':<21}{'Sent(KB)':<13}{'Recv(KB)':<13}{'Total(KB)':<13}Throughput(MB/s)"
    yield _LINE
    for call in found.largest:
        sent, received = call.sent_bytes / KIB, call.received_bytes / KIB
        speed = throughput(call)
        mb_per_s = "-" if speed is None else f"{speed / MIB:.2f}"
        yield (
            f"{call.number:<9}{method_name(call.method):<21}{sent:<13.2f}{received:<13.2f}"
            f"{sent + received:<13.2f}{mb_per_s:>12}"
        )


def _recommendations(found: CallsReport, words: Words) -> Iterator[str]:
    yield from ("", "OPTIMIZATION RECOMMENDATIONS", _LINE)
    if not found.findings:
        yield words.nothing
    for place, finding in enumerate(found.findings):
        yield from [""] * bool(place)
        title, changes = words.of(finding)
        yield f"⚠️  {title} - {words.advice}:"
        yield from (f"   {number}. {change}" for number, change in enumerate(changes, 1))
        yield f"   {words.evidence}: {'; '.join(map(_evidence, finding.evidence))}"
        if finding.gain is not None:
            yield f"   {words.gain}: {_gain(finding)}"
    yield from (f"{words.unjudged}: {phrase}" for phrase in found.unjudged)


def _evidence(one: Evidence) -> str:
    return f"{one.figure} {_figure(one.value, one.unit)} > {_figure(one.limit, one.unit)}"


def _figure(value: float, unit: str) -> str:
    return percent(value) if unit == "share" else f"{value:g} {unit}".rstrip()


def _gain(finding: Finding) -> str:
    return f"{finding.cost_s or 0.0:.3f} s, +{percent(finding.gain)}"
