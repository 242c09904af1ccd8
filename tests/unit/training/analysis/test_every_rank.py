"""Every rank of a large job: what its nodes have sent comes back, value by value."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf import open_run
from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.node import News
from flagscale_perf.spine.session import ranks_name
from flagscale_perf.training.analysis.every_rank import COLUMNS, EveryRank, RankRow
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ranks import exchange
from flagscale_perf.training.ranks.blocks import Block, block_steps
from flagscale_perf.training.ranks.exchange import NodeReport, Outbox, directory_of
from flagscale_perf.training.ranks.gather import Gathering, Job
from flagscale_perf.training.ranks.kept import KeptBlocks, kept_bytes
from flagscale_perf.training.ranks.place import Place
from tests.fakes import make_header
from tests.rank_simulator import PER_NODE, Noise, Simulation
from tests.rank_simulator import Job as Layout
from tests.unit.training.ranks.test_exchange import KEY, line, make_block

RANKS = 1200
START_NS = make_header().start_wall_ns


class Alone:
    """The node of rank 0: its other ranks send what the test lays down."""

    missing = 0

    def __init__(self) -> None:
        self.news: News = News()

    def cycle(self) -> News:
        given, self.news = self.news, News()
        return given

    close = cycle


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "ROUND_S", 0.0)


def write_run(directory: Path) -> Path:
    path = directory / "perf_records_20240129_103000.jsonl"
    path.write_bytes(encode(make_header()))
    return path


def gathered(directory: Path, rounds: list[list[Block]]) -> None:
    """The rounds of a job, through the nodes' files and rank 0's writer."""
    layout = Layout(data=RANKS)
    who, node = layout.identities(), Alone()
    kept = KeptBlocks(directory, START_NS, kept_bytes(None, RANKS))
    facts = RunFacts.of({"world_size": RANKS})
    gathering = Gathering(Job(Place(0, RANKS, 0, PER_NODE, KEY), who[0], facts, directory, kept), node)  # type: ignore[arg-type]
    gathering.take()
    outboxes = {first: Outbox(directory_of(directory, KEY), str(first)) for first in range(8, RANKS, 8)}
    beacon = outboxes[8].beacon()
    assert beacon is not None
    for number, blocks in enumerate(rounds):
        node.news = News(who[1:8], blocks[1:8])
        for first, outbox in outboxes.items():
            lines = [line(block) for block in blocks[first : first + 8]]
            report = NodeReport(beacon.token, who[first : first + 8], [], [], 8 * number, lines)
            outbox.write(report.encode())
        records = [record for _ in range(3) for record in _all_of(gathering)]
        assert not [record for record in records if "cannot" in str(record)]
    assert gathering.close()[1] == []


def _all_of(gathering: Gathering) -> list[object]:
    """Until a whole round of files was looked at."""
    inbox = gathering._gatherer._inbox
    assert inbox is not None
    records, notes = gathering.take()
    while inbox._round:
        more, said = gathering.take()
        records, notes = records + more, notes + said
    assert notes == []
    return list(records)


def sent(rounds: list[list[Block]]) -> list[Block]:
    """All but rank 0's, which the test does not train."""
    return [block for blocks in rounds for block in blocks[1:]]


def row_of(block: Block) -> RankRow:
    return (f"host-{block.rank // PER_NODE}", *block[:-2], *block.host)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[Block]]]:
    directory = tmp_path_factory.mktemp("job")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(exchange, "ROUND_S", 0.0)
        patched.setattr("os.uname", lambda: type("Name", (), {"nodename": "host-0"}))
        rounds = list(Simulation(Layout(data=RANKS), Noise(step=0.02)).rounds(3))
        write_run(directory)
        gathered(directory, rounds)
    return directory, rounds


def test_every_value_comes_back_as_it_was_sent(recorded: tuple[Path, list[list[Block]]]) -> None:
    directory, rounds = recorded
    found = EveryRank(open_session(directory))
    came = sorted((one.block for one in found), key=lambda block: (block.iteration, block.rank))
    assert came == sent(rounds), "with their cuts"
    rows = sorted((row[1:] for row in found.rows()), key=lambda row: (row[3], row[1]))
    assert rows == [row_of(block) for block in sent(rounds)]
    assert found.remarks() == []
    steps = 3 * block_steps(RANKS)
    size = sum(path.stat().st_size for path in found.paths)
    assert size / RANKS / steps < 100, "bytes a rank and step"


def test_the_columns_of_all_rows(recorded: tuple[Path, list[list[Block]]]) -> None:
    found = EveryRank(open_session(recorded[0]))
    columns = [*zip(*(chunk for chunk in found.columns()), strict=True)]
    assert len(columns) == len(COLUMNS)
    rows = [*zip(*([value for part in parts for value in part] for parts in columns), strict=True)]
    assert rows == [*found.rows()]


def test_one_rank_as_a_table(recorded: tuple[Path, list[list[Block]]]) -> None:
    directory, rounds = recorded
    frame = open_run(directory).every_rank(ranks=[1171])
    expected = [blocks[1171].iteration_ns / 1e6 for blocks in rounds]  # type: ignore[operator]
    assert frame.iteration_ms.tolist() == pytest.approx(expected)
    assert (set(frame.node), frame.attrs["remarks"]) == ({"host-146"}, [])
    one = rounds[1][1171]
    assert len(open_run(directory).every_rank(one.first_iteration, one.iteration, [1171])) == 1


def test_a_damaged_file_gives_the_rest_and_says_what_is_missing(
    recorded: tuple[Path, list[list[Block]]], tmp_path: Path
) -> None:
    content = (recorded[0] / ranks_name(START_NS, 0)).read_bytes()
    lines = content.splitlines(keepends=True)
    flipped = bytearray(lines[1])
    flipped[100] ^= 4
    write_run(tmp_path)
    (tmp_path / ranks_name(START_NS, 0)).write_bytes(
        b"".join([lines[0], flipped, *lines[2:-1], lines[-1][:-9]])
    )
    found = EveryRank(open_session(tmp_path))
    all_of_them = sorted(sent(recorded[1]))
    left_out = len(all_of_them) - len([*found])
    assert left_out == sum(each.count(b"[6,") for each in (lines[1], lines[-1])) > 1
    assert found.remarks() == [
        "1 lines of ranks' blocks are damaged and left out",
        f"{len(lines[-1]) - 9:,} bytes behind the last whole line: cut off, or still being written",
    ]


def test_what_another_writer_reads_again_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path)
    for numbers in (
        (0, 1, 2),
        (1, 2, 3),
    ):  # the second writer finds the files of the first one's last seconds
        kept = KeptBlocks(tmp_path, START_NS, 10**9)
        kept.add("node1", [line(make_block(8, number)) for number in numbers])
        kept.close()
    kept.add("node1", [line(make_block(8, 3))])  # a rank that leaves sends its last block once more
    kept.close()
    found = EveryRank(open_session(tmp_path))
    assert [row[4] // 5 for row in found.rows()] == [0, 1, 2, 3]
    assert len([*found]) == 7


def test_an_iteration_that_is_done_again_counts_again(tmp_path: Path) -> None:
    write_run(tmp_path)
    kept = KeptBlocks(tmp_path, START_NS, 10**9)
    again = make_block(8, 1)._replace(iteration_ns=101)
    kept.add("node1", [line(make_block(8, number)) for number in (1, 2)] + [line(again)])
    kept.close()
    assert [row[6] for row in EveryRank(open_session(tmp_path)).rows()] == [100, 100, 101]


def test_blocks_of_another_version_are_counted(tmp_path: Path) -> None:
    write_run(tmp_path)
    kept = KeptBlocks(tmp_path, START_NS, 10**9)
    kept.add("node1", [b"[4,1]", line(make_block(8, 1)), b'"x"', b"[5,[8]]", b"[]"])
    kept.close()
    found = EveryRank(open_session(tmp_path))
    assert len([*found.rows()]) == 1
    assert found.remarks() == ["4 blocks of ranks are damaged or of another version, and left out"]
    assert [row[2] for row in EveryRank(open_session(tmp_path), [8, 9]).rows()] == [8]


def test_a_session_without_them_says_what_keeps_them(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    with pytest.raises(
        PerfError, match="not every rank is kept: it is in jobs of more than 256 ranks, and with --perf"
    ):
        open_run(run).every_rank()
