"""A small part of the fuzzing, always the same, and files that no mutation makes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.rank_records import NodeRecord
from tests.conftest import RunPython
from tests.fakes import make_facts, make_header, sample_run
from tests.fuzz import side_files
from tests.fuzz.exchange import exchange_findings, heard, whole
from tests.fuzz.mutations import MUTATIONS, TEXTS, corpus, mutated
from tests.fuzz.target import NAME, UNSAFE, commands, findings

FILES = 60
MEMORY_BYTES = 256 << 20
GOOD = corpus()[0]

# Command lines with so much memory, one after another; the file is as large as it likes.
LIMITED = f"""
import contextlib, io, json, sys
from flagscale_perf.cli import COMMANDS, load_command, main
from tests.fuzz.target import limit_memory
encoding, *lines = json.loads(sys.argv[1])
[load_command(name) for name in COMMANDS]
limit_memory({MEMORY_BYTES})
results = []
for words in lines:
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    results.append([code, *(each.seek(0) or each.read() for each in (out, err))])
print(json.dumps(results))
"""


def outcomes(
    run_python: RunPython, lines: list[list[str]], encoding: str = "utf-8"
) -> list[tuple[int, str, str]]:
    """Exit code, stdout and stderr of each command line."""
    done = run_python("-c", LIMITED, json.dumps([encoding, *lines]))
    assert (done.returncode, done.stderr) == (0, "")
    return [(code, out, err) for code, out, err in json.loads(done.stdout)]


def test_some_damaged_files_harm_no_command(run_python) -> None:
    result = run_python("-m", "tests.fuzz", "--files", str(FILES), timeout_s=600)
    assert result.stdout == f"{FILES} damaged files from seed 0 on, 0 findings\n", result.stderr
    assert result.returncode == 0


def test_the_same_seed_is_the_same_file_and_every_mutation_is_among_some_hundred() -> None:
    seeds = corpus()
    files = [mutated(seed, seeds) for seed in range(100)]
    assert files == [mutated(seed, seeds) for seed in range(100)]
    assert len(set(files)) > 90
    assert len(set(MUTATIONS)) == 7


def test_a_harmless_file_has_no_finding_and_a_harmful_reader_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [findings(content, tmp_path) for content in corpus()] == [[]] * len(corpus())
    hostile = b"".join(map(encode, [make_header(facts=make_facts(hostname="\x1b[2J")), *sample_run()[1:]]))
    assert findings(hostile, tmp_path) == []
    monkeypatch.setattr("flagscale_perf.report.text.printable", lambda text: text)
    monkeypatch.setattr("flagscale_perf.training.analysis.live.LiveRun.add", lambda run, record: 1 / 0)
    report, watch = findings(hostile, tmp_path)
    assert report.what == "'\\x1b' reached the terminal"
    assert watch.what == "ZeroDivisionError: division by zero"


def test_a_whole_exchange_file_is_heard_and_a_harmful_reader_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records, notes = heard(whole(), tmp_path)
    assert [record.ranks for record in records if isinstance(record, NodeRecord)] == [[0], [1, 2]]
    assert (notes, exchange_findings(whole(), tmp_path)) == (["rank 1: hot"], [])
    monkeypatch.setattr("flagscale_perf.training.ranks.view.RanksView.add", lambda view, block: 1 / 0)
    (found,) = exchange_findings(whole(), tmp_path)
    assert found.what == (
        "the gathering has ended: nothing is recorded of other ranks any more: ZeroDivisionError: "
        "division by zero"
    )


def test_a_whole_file_of_operators_runs_is_harmless_and_a_harmful_reader_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    side = side_files.whole(tmp_path)
    assert side_files.side_findings(side, tmp_path) == []
    monkeypatch.setattr("flagscale_perf.profile.calls._column", lambda *_: 1 / 0)
    found = {each.what for each in side_files.side_findings(side, tmp_path)}
    assert found == {"ZeroDivisionError: division by zero"}


@pytest.mark.parametrize("kind", side_files.SPECIAL)
def test_special_files_of_operators_runs_are_left_out_in_bounded_memory(
    run_python: RunPython, tmp_path: Path, kind: str
) -> None:
    path = tmp_path / NAME
    path.write_bytes(side_files.run_file())
    side_files.SPECIAL[kind](tmp_path / side_files.SIDE)
    lines = [words for words in commands(path) if "--all-sessions" not in words and "watch" not in words]
    for words, (code, out, err) in zip(lines, outcomes(run_python, lines), strict=True):
        assert (code, "Traceback" in err, bool(out)) == (0, False, True), (words, err)


def sparse(size_bytes: int, head: bytes = b"") -> Callable[[Path], None]:
    def make(path: Path) -> None:
        path.write_bytes(head)
        os.truncate(path, size_bytes)

    return make


def repeated(line: bytes, times: int) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(GOOD + line * times)


REFUSED, SHOWN = 2, 0
SPECIAL = {
    "10 GB of nothing": (sparse(10 * 10**9), REFUSED),
    "a run and 300 MB of nothing": (sparse(3 * 10**8, GOOD), SHOWN),
    "a line of 64 MB": (repeated(b"x" * (1 << 20), 64), SHOWN),
    "many deep lines": (repeated(b"[" * 100_000 + b"\n", 100), SHOWN),
    "many wrong lines": (repeated(b"{}\n", 50_000), SHOWN),
    "a pipe": (os.mkfifo, REFUSED),
    "an endless device": (lambda path: path.symlink_to("/dev/zero"), REFUSED),
    "a directory": (Path.mkdir, REFUSED),
    "a link to itself": (lambda path: path.symlink_to(path), REFUSED),
    "a link to nowhere": (lambda path: path.symlink_to("nowhere"), REFUSED),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_a_special_file_is_read_in_bounded_memory_or_refused(
    run_python: RunPython, tmp_path: Path, kind: str
) -> None:
    make, code = SPECIAL[kind]
    path = tmp_path / NAME
    make(path)
    lines = [words for words in commands(path) if "--all-sessions" not in words and "watch" not in words]
    for words, (given, out, err) in zip(lines, outcomes(run_python, lines), strict=True):
        assert (given, "Traceback" in err) == (code, False), (words, err)
        assert bool(out) == (code == SHOWN), words


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_terminal_that_lacks_a_character_gets_its_number(
    run_python: RunPython, tmp_path: Path, encoding: str
) -> None:
    path = tmp_path / NAME
    header = make_header(facts=make_facts(hostname="".join(TEXTS)[:5000] + "ü京"))
    path.write_bytes(b"".join(map(encode, [header, *sample_run()[1:]])))
    for code, _, err in outcomes(run_python, commands(path), encoding):
        assert (code, err) == (0, "")


def test_a_directory_whose_name_would_clear_the_screen(run_python: RunPython, tmp_path: Path) -> None:
    directory = tmp_path / "logs\x1b[2J\u202e\nTraining has failed"
    directory.mkdir()
    (directory / NAME).write_bytes(b"no run file\n")
    for code, out, err in outcomes(run_python, commands(directory / NAME)):
        assert (code, out) == (2, "")
        assert not UNSAFE.search(err)
