"""What is known of calls, from a log."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnosis.observed import Load, Observed, loads_of

from flagscale_perf.spine.errors import PerfError

# A log as others write it: Recv(ms) holds the wait, and no server says what it took.
FOREIGN = """ZeroMQ Performance Log - Transport: TCP
{ruler}
ID    Method               Serialize(ms)   Send(ms)     Recv(ms)     Deserialize(ms)   Total(ms)    Sent(KB)     Recv(KB)     Throughput(MB/s)  
{ruler}
1     Embedding            0.100           0.200        0.300        0.400             1.000        8.00         8192.00      8007.81           
2     BatchLinear          1.000           2.000        3.000        4.000             10.000       8192.00      12288.00     2000.00           
3     BatchLinear          1.000           2.000        3.000        4.000             10.000       8192.00      12288.00     2000.00           
""".format(ruler="=" * 116)  # noqa: E501, W291


def test_a_log_of_others_has_every_call_and_its_transport(tmp_path: Path) -> None:
    path = tmp_path / "zmq_performance.log"
    path.write_text(FOREIGN)
    seen = Observed.of_session(path)
    assert seen.loads == (Load(1, 8192, 8192 * 1024), Load(2, 2 * 8192 * 1024, 2 * 12288 * 1024))
    assert [load.each for load in seen.loads] == [(8192, 8192 * 1024), (8192 * 1024, 12288 * 1024)]
    assert seen.whole == Load(3, 8192 + 2 * 8192 * 1024, 8192 * 1024 + 2 * 12288 * 1024)
    assert (seen.source, seen.transport, seen.payload) == (str(path), "TCP", "msgpack")
    assert seen.rpc_s == pytest.approx(0.021)
    assert seen.server_s is None


def test_calls_are_grouped_where_their_sizes_differ_by_less_than_a_factor_of_2() -> None:
    assert loads_of([(8, 20), (30, 5), (15, 31), (16, 20)]) == (
        Load(2, 23, 51),
        Load(1, 30, 5),
        Load(1, 16, 20),
    )


def test_our_own_log_names_its_types(repo: Path) -> None:
    seen = Observed.of_session(repo / "tests/golden/zmq_performance.log")
    assert (seen.dtypes, seen.server_dtype) == (("float32",), "torch.float32")
    assert (seen.transport, seen.payload) == ("IPC", "frames")
    assert seen.server_s is not None


def test_a_log_without_a_call_says_so(tmp_path: Path) -> None:
    path = tmp_path / "zmq_performance.log"
    path.write_text("".join(FOREIGN.splitlines(keepends=True)[:4]))
    with pytest.raises(PerfError, match="has no call that came to its end; name a log or a run file"):
        Observed.of_session(path)
