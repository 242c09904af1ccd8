"""Lines of logs summed up, and what their numbers say of others."""

from __future__ import annotations

from pathlib import Path

from flagscale_perf.analysis.log_files import LogChunks
from flagscale_perf.trace.analysis.log_reader import LogReader, Losses, Numbers
from flagscale_perf.trace.analysis.sums import Sums
from tests.trace_runs import lines_of_call, lines_of_put


def test_several_logs_are_one_sum(tmp_path: Path) -> None:
    sums, losses = Sums(), Losses()
    reader = LogReader(sums, losses)
    for number, name in enumerate(("a.log", "b.log"), 1):
        behind = f" | pid=7 | number={2 * number}"
        (tmp_path / name).write_text("\n".join(lines_of_call(behind=behind) + lines_of_put()))
        reader.read(LogChunks(tmp_path / name))
    reader.finish()
    assert (reader.lines, sums.calls, sums.count, losses.lost, losses.unfinished) == (20, 2, 2, 1, 0)


def test_numbers_without_gaps() -> None:
    numbers = Numbers()
    assert numbers.missing == 0
    numbers.add([5, 3])
    assert (numbers.count, numbers.missing) == (2, 1)
    numbers.add([3, 4, 5])
    assert numbers.missing == -2
