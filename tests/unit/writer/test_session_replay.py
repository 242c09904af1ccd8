"""The run file of a writer that died."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.writer.session import replay
from tests.fakes import make_header, make_step


@pytest.mark.parametrize("torn", [b"", b'{"kind":"st', b"x", encode(make_step(3))[:-1]])
def test_a_torn_tail_is_cut_off_and_the_rest_comes_back(tmp_path: Path, torn: bytes) -> None:
    path = tmp_path / "run.jsonl"
    good = encode(make_header()) + encode(make_step(1)) + b"damaged\n" + encode(make_step(2))
    path.write_bytes(good + torn)
    assert list(replay(path)) == [make_header(), make_step(1), make_step(2)]
    assert path.read_bytes() == good


def test_a_header_that_is_torn_leaves_an_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(encode(make_header())[:50])
    assert (list(replay(path)), path.read_bytes()) == ([], b"")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"torn")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with pytest.raises(OSError, match="symbolic links"):
        list(replay(tmp_path / "link"))
    assert (tmp_path / "real").read_bytes() == b"torn"
