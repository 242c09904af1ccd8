"""Damaged run files, and files of every rank beside them, as tables: their rows are what the reader yields,
and no damage is an error of ours.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.lake import ask
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.store.cache import Place
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.training.analysis.every_rank import COLUMNS, EveryRank
from flagscale_perf.training.ranks.blocks import encode_block
from flagscale_perf.training.ranks.kept import KeptBlocks
from tests.fakes import make_header, make_step
from tests.fuzz.mutations import corpus, mutated
from tests.unit.store.test_seal import NAME, check, sealed
from tests.unit.training.ranks.test_exchange import make_block

FILES = 60


def test_some_damaged_files_are_the_rows_that_the_reader_yields(tmp_path: Path) -> None:
    seeds, read = corpus(), 0
    for seed in range(FILES):
        path = tmp_path / f"{seed}" / NAME
        path.parent.mkdir()
        path.write_bytes(mutated(seed, seeds))
        try:
            RunFile(path)
        except PerfError as error:
            with pytest.raises(PerfError) as refused:
                sealed(path)
            assert str(refused.value) == str(error)
            continue
        check(path, sealed(path, Place(tmp_path / f"out{seed}", (), 0o700)))
        read += 1
    assert read > FILES // 3
    (count,) = ask(tmp_path, "select count(*) from records.header", lambda line: None).rows
    assert count[0] > 0


def test_damaged_files_of_every_rank_are_the_rows_that_their_reader_yields(tmp_path: Path) -> None:
    """Two parts, either damaged: each line has a checksum, so no row is in them that was not sent."""
    good, start_ns = tmp_path / "good", make_header().start_wall_ns
    good.mkdir()
    kept = KeptBlocks(good, start_ns, 8 << 10)
    for number in range(1, 9):
        kept.add("node1", [dump(encode_block(make_block(rank, number))).encode() for rank in (8, 9)])
        kept.flush()
    kept.close()
    write_run(good)
    parts, sent = sorted(good.glob("perf_ranks_*")), rows_of_every_rank(good)
    assert len(parts) > 1 and len(sent) == 16
    for seed in range(FILES):
        place = tmp_path / f"{seed}"
        shutil.copytree(good, place, ignore=shutil.ignore_patterns("cache"))
        damaged = place / parts[seed % len(parts)].name
        damaged.write_bytes(mutated(seed, [damaged.read_bytes()]))
        assert ask(place, EVERY_RANK, lambda line: None).rows == (found := rows_of_every_rank(place))
        assert all(row in sent for row in found), seed


EVERY_RANK = f"select {', '.join(COLUMNS)} from every_rank order by all"


def write_run(directory: Path) -> None:
    records = [make_header(), *map(make_step, range(5))]
    (directory / NAME).write_bytes(b"".join(map(encode, records)))


def rows_of_every_rank(directory: Path) -> list[list[object]]:
    """As the files have them now, without tables."""
    return sorted(map(list, EveryRank(open_session(directory)).rows()))
