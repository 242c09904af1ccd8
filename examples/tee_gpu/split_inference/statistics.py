"""What the calls of a run took and moved, as text."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.rpc.records import CallRecord
from flagscale_perf.rpc.totals import tenths

NS, MIB = 1e9, 2**20
KINDS = {"Matmul": "Matmul", "BatchLinear": "Linear", "LMHead": "Linear", "Embedding": "Embedding"}
FUSED = "Fused"  # every other method


@dataclass(frozen=True)
class Timing:
    """Of a run, by the caller's clock.

    Attributes:
        total_ns: from its begin to its end.
        in_calls_ns: of this, sending calls and waiting for them.
        overlapping: two calls or more were under way at a time.
    """

    total_ns: int
    in_calls_ns: int
    overlapping: bool = False


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
        self.calls = self.total_ns = self.serialize_ns = self.deserialize_ns = 0
        self.sent_bytes = self.received_bytes = 0
        self.server_ns: dict[str, int] = {}  # by kind of method

    def add(self, record: CallRecord) -> None:
        """One more call."""
        self.recorded += 1
        if record.method == "Init":
            return
        self.calls += 1
        self.total_ns += record.total_ns
        self.serialize_ns += record.serialize_ns
        self.deserialize_ns += record.deserialize_ns
        self.sent_bytes += record.sent_bytes
        self.received_bytes += record.received_bytes
        kind = KINDS.get(record.method, FUSED)
        self.server_ns[kind] = self.server_ns.get(kind, 0) + (record.server_ns or 0)

    def text(self, dtype: str) -> str:
        """The sums as lines of text."""
        each = max(self.calls, 1) * 1e6
        return "\n".join(
            [
                "Performance statistics:",
                f"RPC Calls:        {self.calls}",
                f"Calls in all:     {self.recorded} (with Init)",
                *(
                    f"{name + ':':<17} {took_ns / NS:.3f}s ({took_ns / each:.3f}ms/call)"
                    for name, took_ns in (
                        ("RPC Time", self.total_ns),
                        ("Serialize Time", self.serialize_ns),
                        ("Deserialize Time", self.deserialize_ns),
                    )
                ),
                f"Data Sent:        {self.sent_bytes / MIB:.2f} MiB ({dtype.removeprefix('torch.')})",
                f"Data Received:    {self.received_bytes / MIB:.2f} MiB ({dtype.removeprefix('torch.')})",
            ]
        )

    def tree(self, timing: Timing) -> str:
        """Where a run's time went; every nanosecond once, so that the shares add to 100."""
        tee_ns = timing.total_ns - timing.in_calls_ns
        waited_ns = timing.in_calls_ns - self.serialize_ns - self.deserialize_ns
        serial = [("Serialize", self.serialize_ns), ("Deserialize", self.deserialize_ns)]
        gpu_ns = sum(self.server_ns.values())
        if timing.overlapping:
            branches = [("RPC", [*serial, ("Waiting for the GPU side", waited_ns)])]
        else:
            branches = [
                ("GPU compute", list(self.server_ns.items())),
                ("RPC", [*serial, ("Transport", waited_ns - gpu_ns)]),
            ]
        lines = _lines(timing.total_ns, [*branches, ("TEE compute", [("", tee_ns)])])
        if timing.overlapping:
            hidden_ns = max(gpu_ns - waited_ns, 0)
            lines.append(
                f"GPU compute took {gpu_ns / NS:.3f} s beside that, at least {hidden_ns / NS:.3f} s of it "
                "while this side computed"
            )
        return "\n".join(lines)


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
