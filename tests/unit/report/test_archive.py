"""Traces of other programs beside a job's, each with the offset of its clock."""

from __future__ import annotations

import gzip
import json
import sqlite3
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("perfetto.protos", reason="needs Perfetto's package")

from flagscale_perf.analysis.drawing import Drawing
from flagscale_perf.analysis.job import Job
from flagscale_perf.report.archive import Foreign, foreign_of, pieces
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from tests.fakes import sample_run
from tests.profile_runs import START_WALL_NS
from tests.traces import check, of_protobuf

BASE_NS = START_WALL_NS - 7_000_000_000  # seven seconds before the job
KINETO = {"schemaVersion": 1, "host_name": "gpu3", "baseTimeNanoseconds": BASE_NS, "traceEvents": []}


@pytest.fixture
def drawing(tmp_path: Path) -> Drawing:
    directory = tmp_path / "run"
    directory.mkdir()
    path = directory / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(map(encode, sample_run())))
    return Drawing(Job(directory).whole())


def written(directory: Path, name: str, content: Any) -> Path:
    path = directory / name
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    return path


def members(content: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(content)) as archive:
        return {each.name: archive.extractfile(each).read() for each in archive}  # type: ignore[union-attr]


def test_an_archive_has_the_job_the_others_as_they_are_and_how_they_lie(
    drawing: Drawing, tmp_path: Path
) -> None:
    kineto, same = written(tmp_path, "k.json", KINETO), written(tmp_path, ".k.json", KINETO)
    titan = written(tmp_path, "titan.jsonl", {"rank": 0, "time_us": 1_709_500_000_123_456})
    beside = [foreign_of(kineto, None), foreign_of(same, "gpu4"), foreign_of(titan, None)]
    found = members(b"".join(pieces(drawing, beside)))
    assert [*found] == [
        "perfetto_manifest.json",
        "job.pftrace",
        "k.json",
        "_k.json",
        ".not_drawn/titan.jsonl",
    ]
    assert found["k.json"] == kineto.read_bytes() and found[".not_drawn/titan.jsonl"] == titan.read_bytes()
    check(of_protobuf(found["job.pftrace"]))
    sync = {"file": "job.pftrace", "clock": "MONOTONIC"}
    assert json.loads(found["perfetto_manifest.json"]) == {
        "perfetto_manifest": {
            "version": 1,
            "trace_time": {"clock": "MONOTONIC", "file": "job.pftrace"},
            "files": [
                {"path": "job.pftrace", "machine": {"name": "node0"}},
                *(
                    {
                        "path": name,
                        "machine": {"name": host},
                        "clocks": {"sync_to": sync, "offset_ns": offset_ns},
                    }
                    for name, host, offset_ns in (
                        ("k.json", "gpu3", -7_000_000_000),
                        ("_k.json", "gpu4", -7_000_000_000),
                        (".not_drawn/titan.jsonl", "node0", -START_WALL_NS),
                    )
                ),
            ],
            "attributes": {"flagscale_perf.session": "20240129_103000"},
        }
    }
    assert found["perfetto_manifest.json"].startswith(b"{")


UNIX = [{"ph": "X", "name": "prefill", "ts": 1_709_500_000_123_456.5, "dur": 3, "pid": 1, "tid": 1}]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("kineto.json.gz", gzip.compress(json.dumps(KINETO).encode()), ("gpu3", BASE_NS, True)),
        ("base_last.json", {"traceEvents": UNIX, "baseTimeNanoseconds": 5}, (None, 5, True)),
        ("unix.json", {"traceEvents": UNIX}, (None, 0, True)),
        ("list.json", UNIX, (None, 0, True)),
        ("otlp.json", {"resourceSpans": []}, (None, 0, False)),
        ("own.pftrace", b"\n\x02\x50\x01", (None, None, True)),
    ],
)
def test_a_trace_says_what_its_times_count_from(
    name: str, content: Any, expected: tuple[Any, ...], tmp_path: Path
) -> None:
    path = written(tmp_path, name, content)
    assert foreign_of(path, None) == Foreign(path, *expected)


def test_nsys_tells_when_its_session_began(tmp_path: Path) -> None:
    path = tmp_path / "nsys?1.sqlite"
    made = sqlite3.connect(path)
    made.execute("create table TARGET_INFO_SESSION_START_TIME (utcEpochNs int, utcTime text, localTime text)")
    made.execute("insert into TARGET_INFO_SESSION_START_TIME values (17, '', '')")
    made.commit()
    made.close()
    assert foreign_of(path, "gpu1") == Foreign(path, "gpu1", 17, False)


@pytest.mark.parametrize("content", [b"", b"hello", json.dumps({"traceEvents": [{"ts": 5.0}]}).encode()])
def test_what_does_not_say_it_is_refused(content: bytes, tmp_path: Path) -> None:
    path = written(tmp_path, "x.json", content)
    with pytest.raises(PerfError, match="nothing in it says what its times count from; it can be a trace of"):
        foreign_of(path, None)
    with pytest.raises(PerfError, match="none.json: cannot be read"):
        foreign_of(tmp_path / "none.json", None)
    with pytest.raises(PerfError, match="cannot be read"):
        foreign_of(written(tmp_path, "y.sqlite", b"SQLite format 3\0 broken"), None)
