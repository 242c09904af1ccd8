"""The writer's end of the file by which a live run is asked for something."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.training.requests import PROFILE, STACKS, STEPS, RequestFile


def test_each_kind_is_taken_by_who_meets_it_and_once(tmp_path: Path) -> None:
    path, found = tmp_path / "request", RequestFile(tmp_path / "request")
    assert found.take(STEPS) is None
    path.write_text('{"profile": 3}')
    assert (found.take(STEPS), found.take(STACKS), found.take(PROFILE)) == (None, None, 3)
    assert found.take(PROFILE) is None and not path.exists()


@pytest.mark.parametrize("content", [b"", b"\xff", b"[1]", b'{"other": 1}', b"[" * 500])
def test_what_is_no_request_is_removed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "request").write_bytes(content)
    assert RequestFile(tmp_path / "request").take(STACKS) is None
    assert not (tmp_path / "request").exists()
