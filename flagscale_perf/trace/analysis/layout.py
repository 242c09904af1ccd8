"""The report in the requirement's layout and wording."""

from __future__ import annotations

from flagscale_perf.spine.units import printable
from flagscale_perf.trace.analysis.source import Traces
from flagscale_perf.trace.analysis.sums import NS
from flagscale_perf.trace.sums import FunctionSums

WIDTH = 80
_VALUE_AT = 20
TITLE = "TransferQueue Performance Analysis Report"
NOTHING = "no TQ-TRACE line in it: is TQ_TRACE_ENABLED=1 set, and VERL_LOGGING_LEVEL not above INFO?"


def layout(traces: Traces) -> str:
    """The whole text, ending with a newline."""
    sums = traces.sums
    rows = ["=" * WIDTH, TITLE, "=" * WIDTH, "", f"Total Traces: {sums.trace_count}", ""]
    ordered = sorted(sums.functions.items(), key=lambda item: -item[1].total.total)
    for name, one in ordered:
        if one.calls:
            rows += _function(name, one)
    total, get, _, put = sums.overall()
    rows += ["=" * WIDTH, "全局汇总", "=" * WIDTH]
    rows += [
        _line("总执行时间", _seconds(total)),
        _line("总TQ时间", _seconds(get + put)),
        _line("全局TQ开销占比", _percent((get + put) / total if total else 0.0)),
    ]
    return "\n".join([*rows, "=" * WIDTH, ""])


def _function(name: str, one: FunctionSums) -> list[str]:
    rule = "─" * WIDTH
    get, compute, put = one.parts()
    count, total = one.total.weight, one.total.total
    parts = (("平均GET耗时", get), ("平均COMPUTE耗时", compute), ("平均PUT耗时", put))
    means = [
        _line(label, f"{_seconds(part / count)} ({_percent(part / total if total else 0.0)})")
        for label, part in parts
    ]
    return [
        rule,
        f"Function: {printable(name)}",
        rule,
        _line("调用次数", f"{round(count)}"),
        _line("平均总耗时", _seconds(total / count)),
        *means,
        _line("TQ总开销", _percent((get + put) / total if total else 0.0)),
        "",
    ]


def _line(label: str, value: str) -> str:
    """Aligns the values in one column, counting a Chinese character as two columns."""
    wide = sum(2 if ord(letter) > 0x2E80 else 1 for letter in label) + 1
    return f"  {label}:{' ' * max(1, _VALUE_AT - wide)}{value}"


def _seconds(value_ns: float) -> str:
    return f"{value_ns / NS:.6f}s"


def _percent(share: float) -> str:
    return f"{100 * share:.2f}%"
