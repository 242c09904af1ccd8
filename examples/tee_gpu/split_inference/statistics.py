"""What the calls of a run took and moved, as text."""

from __future__ import annotations

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.stages import ALL_STAGES
from flagscale_perf.rpc.totals import CallTotals, Totals, tenths

NS, MIB = 1e9, 2**20
KINDS = {"Matmul": "Matmul", "BatchLinear": "Linear", "LMHead": "Linear", "Embedding": "Embedding"}
FUSED = "Fused"  # every other method
_PLACES = {stage.name: place for place, stage in enumerate(ALL_STAGES)}


class Statistics:
    """Sums of calls. `Init` is not among them: it belongs to no forward pass.

    Attributes:
        recorded: every call of the connection, as the log has them.
    """

    def __init__(self) -> None:
        self.recorded = 0
        self.clear()

    def clear(self) -> None:
        """Begins anew."""
        self._sums = CallTotals()

    def add(self, record: CallRecord) -> None:
        """One more call."""
        self.recorded += 1
        if record.method != "Init":
            self._sums.add(record)

    def text(self, dtype: str) -> str:
        """The sums as lines of text."""
        whole = self._sums.overall
        each, dtype = max(whole.calls, 1) * 1e6, dtype.removeprefix("torch.")
        return "\n".join(
            [
                "Performance statistics:",
                f"RPC Calls:        {whole.calls}",
                f"Calls in all:     {self.recorded} (with Init)",
                *(
                    f"{name + ':':<17} {took_ns / NS:.3f}s ({took_ns / each:.3f}ms/call)"
                    for name, took_ns in (
                        ("RPC Time", whole.total_ns),
                        ("Serialize Time", _stage_ns(whole, "serialize")),
                        ("Deserialize Time", _stage_ns(whole, "deserialize")),
                    )
                ),
                f"Data Sent:        {whole.sent_bytes / MIB:.2f} MiB ({dtype})",
                f"Data Received:    {whole.received_bytes / MIB:.2f} MiB ({dtype})",
            ]
        )

    def tree(self, total_ns: int, in_calls_ns: int, is_overlapping: bool) -> str:
        """Where a run's time went; every nanosecond once, so that the shares add to 100.

        Args:
            total_ns: from its begin to its end, by the caller's clock.
            in_calls_ns: of this, sending calls and waiting for them.
            is_overlapping: two calls or more were under way at a time.
        """
        whole = self._sums.overall
        serial = [(name.capitalize(), _stage_ns(whole, name)) for name in ("serialize", "deserialize")]
        waited_ns = in_calls_ns - sum(took_ns for _, took_ns in serial)
        gpu_ns = _stage_ns(whole, "server")
        if is_overlapping:
            branches = [("RPC", [*serial, ("Waiting for the GPU side", waited_ns)])]
        else:
            branches = [
                ("GPU compute", self._by_kind()),
                ("RPC", [*serial, ("Transport", waited_ns - gpu_ns)]),
            ]
        lines = _lines(total_ns, [*branches, ("TEE compute", [("", total_ns - in_calls_ns)])])
        if is_overlapping:
            hidden_ns = max(gpu_ns - waited_ns, 0)
            lines.append(
                f"GPU compute took {gpu_ns / NS:.3f} s beside that, at least {hidden_ns / NS:.3f} s of it "
                "while this side computed"
            )
        return "\n".join(lines)

    def _by_kind(self) -> list[tuple[str, int]]:
        """What the server took for each kind of method, in the order of their first calls."""
        found: dict[str, int] = {}
        for method, totals in self._sums.methods.items():
            kind = KINDS.get(method, FUSED)
            found[kind] = found.get(kind, 0) + _stage_ns(totals, "server")
        return [*found.items()]


def _stage_ns(totals: Totals, name: str) -> int:
    return totals.stages_ns[_PLACES[name]]


def _lines(total_ns: int, branches: list[tuple[str, list[tuple[str, int]]]]) -> list[str]:
    shares = iter(tenths([max(took_ns, 0) for _, leaves in branches for _, took_ns in leaves]))
    lines = [f"Total time: {total_ns / NS:.3f} s"]
    for place, (name, leaves) in enumerate(branches):
        is_last = place == len(branches) - 1
        parts = [(leaf, took_ns, next(shares)) for leaf, took_ns in leaves]
        whole_ns, share = sum(part[1] for part in parts), sum(part[2] for part in parts)
        lines.append(_line("└─ " if is_last else "├─ ", name, whole_ns, share))
        named = [part for part in parts if part[0]]
        for number, part in enumerate(named):
            lines.append(_line("│  └─ " if number == len(named) - 1 else "│  ├─ ", *part))
    return lines


def _line(branch: str, name: str, took_ns: int, share: float) -> str:
    return f"{branch}{name}:".ljust(32) + f"{took_ns / NS:9.3f} s ({share:6.1%})"
