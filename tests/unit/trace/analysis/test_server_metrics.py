"""TransferQueue's own metrics, read and laid beside the client's."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis.server import (
    FILE,
    Client,
    CrossCheck,
    Requests,
    ServerMetrics,
    beside,
    cross_check,
    read,
)

# As the controller of TransferQueue 0.1.11 serves it, with round figures.
PAGE = """\
# HELP tq_controller_request_duration_seconds Controller request processing duration
# TYPE tq_controller_request_duration_seconds histogram
tq_controller_request_duration_seconds_bucket{le="0.001",op_type="NOTIFY_DATA_UPDATE"} 30.0
tq_controller_request_duration_seconds_bucket{le="+Inf",op_type="NOTIFY_DATA_UPDATE"} 40.0
tq_controller_request_duration_seconds_count{op_type="NOTIFY_DATA_UPDATE"} 40.0
tq_controller_request_duration_seconds_sum{op_type="NOTIFY_DATA_UPDATE"} 0.02
# HELP tq_storage_request_ops Number of requests
# TYPE tq_storage_request_ops gauge
tq_storage_request_ops{op_type="PUT_DATA",storage_unit_id="unit_a"} 30.0
tq_storage_request_ops{op_type="PUT_DATA",storage_unit_id="unit_b"} 10.0
tq_storage_request_ops{op_type="CLEAR_DATA",storage_unit_id="unit_b"} 7.0
# HELP tq_storage_request_latency_avg Average latency
# TYPE tq_storage_request_latency_avg gauge
tq_storage_request_latency_avg{op_type="PUT_DATA",storage_unit_id="unit_a"} 0.001
tq_storage_request_latency_avg{op_type="PUT_DATA",storage_unit_id="unit_b"} 0.005
tq_storage_request_latency_avg{op_type="CLEAR_DATA",storage_unit_id="unit_b"} 0.5
"""
READ = ServerMetrics(
    units={"put": {"unit_a": Requests(30, 0.001), "unit_b": Requests(10, 0.005)}, "get": {}},
    controller={"NOTIFY_DATA_UPDATE": Requests(40, 0.0005)},
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / FILE
    path.write_text(PAGE)
    return path


def test_what_is_served_is_read(page: Path) -> None:
    assert read(page) == READ


def test_it_is_found_beside_the_run_file(page: Path, tmp_path: Path) -> None:
    assert beside(tmp_path / "perf_records_20260102_030405.jsonl") == page
    assert beside(tmp_path / "other/perf_records_20260102_030405.jsonl") is None


def test_both_sides_of_an_operation() -> None:
    put, get = Client(20, 0.02), Client(20, 0.03)
    assert cross_check(READ, {"put": put, "get": get}) == [
        CrossCheck(
            operation="put",
            client=put,
            requests=40,
            requests_per_operation=2.0,
            unit_mean_s=0.002,
            slowest_unit="unit_b",
            slowest_mean_s=0.005,
            outside_share=0.75,
        )
    ]


def test_units_that_say_more_than_the_client_make_no_share() -> None:
    (check,) = cross_check(READ, {"put": Client(20, 0.004)})
    assert check.outside_share is None


def test_nothing_measured_is_nothing_compared() -> None:
    assert cross_check(ServerMetrics(), {"put": Client(20, 0.02)}) == []
    assert cross_check(READ, {"put": Client(0, 0.0)}) == []


def test_what_is_no_metrics_page_is_refused(tmp_path: Path) -> None:
    path = tmp_path / FILE
    path.write_text("<html>not found</html>\n")
    with pytest.raises(PerfError, match=f"{FILE} has no metrics in Prometheus' format"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(PerfError, match="cannot read"):
        read(path)
