"""The figures of a call."""

from __future__ import annotations

from flagscale_perf.rpc.figures import REQUIRED, TABLE, dtype_name, method_name, status_name, throughput
from flagscale_perf.spine.figures import Rows
from tests.rpc_sessions import make_call, make_session

KEYS = "ID,Method,Serialize_ms,Send_ms,Recv_ms,Deserialize_ms,Total_ms,Sent_KB,Recv_KB,Throughput_MBps"


def test_the_first_ones_have_the_names_that_others_use() -> None:
    assert ",".join(TABLE.csv_keys()[:REQUIRED]) == KEYS


def test_a_call_in_figures() -> None:
    assert Rows(TABLE, make_session()).csv(make_call(3)) == {
        "ID": 3,
        "Method": "BatchLinear",
        "Serialize_ms": 3.0,
        "Send_ms": 1.0,
        "Recv_ms": 1.0,
        "Deserialize_ms": 1.0,
        "Total_ms": 10.0,
        "Sent_KB": 1024.0,
        "Recv_KB": 2048.0,
        "Throughput_MBps": 300.0,
        "Wait_ms": 2.0,
        "Queue_ms": 0.1,
        "Server_ms": 1.4,
        "Other_ms": 0.5,
        "Socket_KB": 3072.0,
        "Shared_KB": 0.0,
        "DType": "float32",
        "Status": "OK",
        "Start": "2024-01-29T10:30:00.030000",
    }


def test_what_is_not_known_is_none() -> None:
    row = Rows(TABLE, make_session()).csv(make_call(server_ns=None, queue_ns=None, dtype=0, total_ns=0))
    assert [row[key] for key in ("Server_ms", "Queue_ms", "DType", "Throughput_MBps")] == [None] * 4
    assert throughput(make_call(total_ns=0)) is None


def test_no_name_can_break_a_line_or_a_column() -> None:
    assert method_name("a b\n\x1b[31m") == "a_b\\x0a\\x1b[31m"
    assert (method_name(""), status_name(1), status_name(99), dtype_name(3)) == (
        "-",
        "TIMEOUT",
        "99",
        "bfloat16",
    )
