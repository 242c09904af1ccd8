"""Traced processes, one run file: whatever ends first."""

from contextlib import ExitStack
from pathlib import Path

from tests.traced import counts, ends, finished, process, so_far


def lines(path: Path, word: str) -> int:
    return path.read_text().count(word)


def test_three_processes_share_one_run_file_and_have_a_log_each(tmp_path: Path) -> None:
    with ExitStack() as stack:
        started = [stack.enter_context(process(tmp_path, "put 1000; call 10; say; wait")) for _ in range(3)]
        pids = [so_far(each) for each in started]
        for each in started:
            each.communicate("\n")
    records = finished(tmp_path)
    assert counts(records) == dict.fromkeys(pids, 1010)
    assert ends(records) == dict.fromkeys(pids, ("completed", 0, 0))
    for pid in pids:
        log = tmp_path / f"tq_trace_{pid}.log"
        assert (lines(log, "TQ_CLIENT_GET_END"), lines(log, "FUNCTION_END")) == (1000, 10)
