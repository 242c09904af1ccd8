"""Damaged run files as tables: their rows are what the reader yields, and no damage is an error of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.lake import ask
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.store.cache import Place
from flagscale_perf.store.run_file import RunFile
from tests.fuzz.mutations import corpus, mutated
from tests.unit.store.test_seal import NAME, check, sealed

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
