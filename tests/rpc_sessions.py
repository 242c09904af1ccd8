"""Calls of a split LLaMA whose times follow from their bytes, as run files and as logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.rpc.dtypes import DType
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.log import LogFormat
from flagscale_perf.rpc.records import CallRecord, ServedRecord
from flagscale_perf.rpc.totals import Totals
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import SCHEMA_VERSION, RunEnd, RunHeader

US, MS, SECOND = 1000, 1_000_000, 1_000_000_000


class Model(NamedTuple):
    """Sizes of a LLaMA."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int


Moved = Sequence[tuple[str, int, int]]  # method, bytes sent and received, of each call
LLAMA_1B = Model(16, 2048, 32, 8, 64, 8192, 128256)
SMALL = Model(4, 64, 4, 2, 16, 128, 512)


def split(model: Model = LLAMA_1B, tokens: int = 1024, item: int = 4, cached: int = 0) -> Moved:
    """What six calls a layer carry, keys and values repeated to every head; `item`: bytes of a value."""
    hidden, inner = tokens * model.hidden * item, tokens * model.ffn * item
    query = tokens * model.heads * model.head_dim * item
    group = tokens * model.kv_heads * model.head_dim * item
    keys = (cached + tokens) * model.heads * model.head_dim * item
    scores = model.heads * tokens * (cached + tokens) * item
    layer = [
        ("BatchLinear", hidden, query + 2 * group),
        ("Matmul", query + keys, scores),
        ("Matmul", scores + keys, query),
        ("BatchLinear", query, hidden),
        ("BatchLinear", hidden, 2 * inner),
        ("BatchLinear", inner, hidden),
    ]
    return _whole(model, tokens, item, layer)


def fused(model: Model = LLAMA_1B, tokens: int = 1024, item: int = 4) -> Moved:
    """One call a layer."""
    hidden = tokens * model.hidden * item
    return _whole(model, tokens, item, [("fused_layer", hidden, hidden)])


def _whole(model: Model, tokens: int, item: int, layer: list[tuple[str, int, int]]) -> Moved:
    row = model.hidden * item
    return [
        ("Embedding", 8 * tokens, tokens * row),
        *layer * model.layers,
        ("LMHead", row, model.vocab * item),
    ]


PREFILL = split()
FACTS = RpcFacts(
    transport="IPC",
    endpoint="ipc:///tmp/tsqp_gpu_server.ipc",
    payload="frames",
    control="zeromq",
    device="cpu",
    dtype="torch.float32",
    latency_ns=100 * US,
)
# The sample in the requirement, to the character.
REQUIREMENT_LOG = (
    "ZeroMQ Performance Log - Transport: IPC\n"
    + "=" * 116
    + "\nID    Method               Serialize(ms)   Send(ms)     Recv(ms)     Deserialize(ms)   Total(ms)    "
    "Sent(KB)     Recv(KB)     Throughput(MB/s)  \n"
    + "="
    * 116
    + "\n1     Init                 0.123           0.045        0.234        0.089             0.491        "
    "0.15         125.34       255.23            \n"
    "2     Embedding            1.234           0.123        0.456        0.234             2.047        "
    "32.50        8192.00      4012.45           \n"
    "3     BatchLinear          2.345           0.234        0.567        0.345             3.491        "
    "8192.00      24576.00     9378.12           \n"
)


def make_call(number: int = 1, **overrides: Any) -> CallRecord:
    """A call of 10 ms that begins at number x 10 ms: 3 serialize, 1 send, 2 wait, 0.1 queue, 1.4 server, 1
    receive, 1 deserialize, 0.5 other; 1 MB (2^20) there and 2 back.
    """
    fields: dict[str, Any] = {
        "number": number,
        "start_ns": number * 10 * MS,
        "total_ns": 10 * MS,
        "serialize_ns": 3 * MS,
        "send_ns": MS,
        "wait_ns": 2 * MS,
        "queue_ns": 100 * US,
        "server_ns": 1400 * US,
        "receive_ns": MS,
        "deserialize_ns": MS,
        "sent_bytes": 1 << 20,
        "received_bytes": 2 << 20,
        "socket_sent_bytes": 1 << 20,
        "socket_received_bytes": 2 << 20,
        "shared_sent_bytes": 0,
        "shared_received_bytes": 0,
        "status": 0,
        "dtype": int(DType.FLOAT32),
        "client": 1,
        "method": "BatchLinear",
    }
    return CallRecord(**fields | overrides)


def make_served(call: int = 1, **overrides: Any) -> ServedRecord:
    """What the server says of `make_call`: 0.1 ms queue, 0.1 read, 1 compute, 0.1 write, 0.2 send."""
    fields: dict[str, Any] = {
        "number": call,
        "client": 1,
        "call": call,
        "start_ns": call * 10 * MS + 4 * MS,
        "total_ns": 1500 * US,
        "queue_ns": 100 * US,
        "read_ns": 100 * US,
        "compute_ns": MS,
        "write_ns": 100 * US,
        "send_ns": 200 * US,
        "received_bytes": 1 << 20,
        "sent_bytes": 2 << 20,
        "status": 0,
        "method": "BatchLinear",
    }
    return ServedRecord(**fields | overrides)


def llama_calls(
    moved: Moved = PREFILL, slower: float = 1.0, first: int = 1, dtype: DType = DType.FLOAT32
) -> list[CallRecord]:
    """One pass: 1 ns a byte to serialize and to deserialize, half of that to send, to wait and to receive, 2
    at the server, all `slower` times that; 100 us of waiting beside it, and 20 us of other.
    """
    calls, at_ns = [], SECOND
    for number, (method, sent, received) in enumerate(moved, first):
        times = {
            "serialize_ns": sent,
            "send_ns": sent / 2,
            "wait_ns": 100 * US / slower + sent / 2,
            "queue_ns": 0,
            "server_ns": 2 * (sent + received),
            "receive_ns": received / 2,
            "deserialize_ns": received,
        }
        whole = {name: round(value * slower) for name, value in times.items()}
        total = sum(whole.values()) + 20 * US
        calls.append(
            make_call(
                number,
                start_ns=at_ns,
                total_ns=total,
                method=method,
                sent_bytes=sent,
                received_bytes=received,
                socket_sent_bytes=sent + 64,
                socket_received_bytes=received + 64,
                dtype=int(dtype),
                **whole,
            )
        )
        at_ns += total + 50 * US
    return calls


def make_session(facts: RpcFacts = FACTS, **config: Any) -> RunHeader:
    """Of 2024-01-29 10:30:00, which is second 0 of the monotonic clock."""
    return RunHeader(
        SCHEMA_VERSION,
        "20240129_103000",
        1_706_524_200 * SECOND,
        0,
        facts.as_dict(),
        PerfConfig().as_dict() | config,
        "rpc",
        "node1",
        "boot",
        4711,
    )


def ended(reason: str = "completed", calls: int = 0) -> RunEnd:
    """The session's end, a minute after its start."""
    return RunEnd(reason, 1_706_524_260 * SECOND, calls, 0)


def write_run(directory: Path, calls: Sequence[Any], facts: RpcFacts = FACTS, **config: Any) -> Path:
    """A run file of these records."""
    path = directory / "perf_records_20240129_103000.jsonl"
    records = [make_session(facts, **config), *calls, ended(calls=len(calls))]
    path.write_bytes(b"".join(map(encode, records)))
    return path


def columns_of(calls: Sequence[CallRecord]) -> dict[str, Sequence[Any]]:
    """At least one call as `rpc.analysis.columns` has them."""
    return dict(zip(CallRecord._fields, zip(*calls, strict=True), strict=True))


def write_log(path: Path, calls: Sequence[CallRecord], facts: RpcFacts = FACTS) -> Path:
    """A log of these calls, ours."""
    lines, totals = LogFormat(make_session(facts)), Totals()
    for call in calls:
        totals.add(call)
    text = lines.heading() + "".join(map(lines.line, calls)) + lines.footer(totals, ended())
    path.write_text(text, encoding="utf-8")
    return path
