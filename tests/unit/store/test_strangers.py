"""What is no run file is named for what it is."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store.run_file import RunFile
from tests.fakes import make_header, make_step

NAME = "perf_records_20240129_103000.jsonl"
RUN = encode(make_header()) + encode(make_step(1))
MEGATRON = b" [2026-11-28 10:45:48] iteration       10/     300 | consumed samples:           80 |\n"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (gzip.compress(RUN, mtime=0), f"it is compressed (gzip): unpack it first (gunzip {NAME})"),
        (
            gzip.compress(RUN, mtime=0)[:12],
            "it is compressed (gzip), and nothing of it can be unpacked: Compressed file ended before the"
            " end-of-stream marker was reached",
        ),
        (
            gzip.compress(b"", mtime=0),
            "it is compressed (gzip), and nothing of it can be unpacked: it holds nothing",
        ),
        (b"(\xb5/\xfd rest", f"it is compressed (zstd): unpack it first (unzstd {NAME})"),
        (
            RUN.decode().encode("utf-16"),
            "it is text in UTF-16, as PowerShell's > writes it: turn it into UTF-8 first (iconv -f UTF-16"
            f" -t UTF-8 {NAME})",
        ),
        (
            b"2026-11-28T02:45:48Z " + RUN,
            "before its header stands '2026-11-28T02:45:48Z ', as log collectors put it before each line:"
            " take it off",
        ),
        (
            b"using world size: 8\n" * 9 + MEGATRON,
            "it is the output of a training, as Megatron prints it: give the directory of --perf-log-dir",
        ),
        (b"\0\1\2" * 99, "it is neither JSON nor text"),
        (b'{"num_layers": 2}', "it is JSON whose first line has no `kind`"),
        (b'{\n  "num_layers": 2\n}\n', "it is JSON whose first line has no `kind`"),
        (b"hello\n", "its first line is no JSON object, but 'hello'"),
        (b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n" * 9, "its first line is no JSON object, but '%PDF-1.4'"),
    ],
)
def test_a_file(tmp_path: Path, content: bytes, reason: str) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(PerfError) as caught:
        RunFile(tmp_path / NAME)
    assert str(caught.value) == f"{tmp_path / NAME}:1: {reason}; this is not a run file of flagscale_perf"


def test_a_byte_order_mark_is_read_past(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(b"\xef\xbb\xbf" + RUN)
    assert list(RunFile(tmp_path / NAME)) == [make_header(), make_step(1)]
    assert open_session(tmp_path).path.name == NAME


OWN = (
    "FlagScale's own monitor writes such files, and no run file: record with flagscale_perf (`torchrun ... -m"
    " flagscale_perf.launch SCRIPT ... --enable-perf-monitor`)"
)
SUMMARY = "perf_summary_20260723_101500.json"
GIVE = "give the directory of --perf-log-dir"


@pytest.mark.parametrize(
    ("names", "what"),
    [
        ([], f", which is empty; {GIVE}"),
        (["notes.txt"], f"; {GIVE}"),
        ([SUMMARY], f", but {SUMMARY}; {OWN}"),
        (["perf_realtime.log"], f", but perf_realtime.log; {OWN}"),
        (["iter_0000010", "latest_checkpointed_iteration.txt"], f", but a checkpoint; {GIVE}"),
        (["events.out.tfevents.1764300000.node.1.0"], f", but TensorBoard's curves; {GIVE}"),
        ([f"{NAME}.gz"], f", but {NAME}.gz, which is compressed; unpack it first"),
    ],
)
def test_a_directory(tmp_path: Path, names: list[str], what: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(PerfError) as caught:
        open_session(tmp_path)
    assert str(caught.value) == f"no perf_records_*.jsonl in {str(tmp_path)!r}{what}"
