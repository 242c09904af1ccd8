"""One damaged file of another node through what reads it in rank 0's writer; what must hold of that."""

from __future__ import annotations

import traceback
from pathlib import Path

from flagscale_perf.spine.jsonl import dump, encode
from flagscale_perf.spine.peers.node import Gone, News
from flagscale_perf.spine.records import Record
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.ranks.blocks import Block, RankIdentity, encode_block
from flagscale_perf.training.ranks.exchange import NodeReport, Outbox, directory_of
from flagscale_perf.training.ranks.gather import Gathering, Job
from flagscale_perf.training.ranks.kept import KeptBlocks
from flagscale_perf.training.ranks.place import Place
from tests.fakes import make_identity
from tests.fuzz.target import Finding

PLACE = Place(0, 3, 0, 1, "0123456789abcdef")
TOKEN = "TOKEN"  # in the place of the one that rank 0 has chosen
WORDS = ["a node's file"]


class _NobodyBeside:
    """Rank 0 is alone on its node."""

    missing = 0

    def cycle(self) -> News[RankIdentity, Block]:
        return News()

    def close(self) -> News[RankIdentity, Block]:
        return News()


def whole() -> bytes:
    """A node's file with everything in it."""
    blocks = [
        Block(rank, 5 * n, 5 * n + 4, 5, 100, 90, 10, 1, 1, 1500, "power", 0, 0)
        for n in range(1, 8)
        for rank in (1, 2)
    ]
    lines = [dump(encode_block(block)).encode() for block in blocks]
    return NodeReport(
        TOKEN, [make_identity(1), make_identity(2)], [Gone("2", 30, "why")], [("1", "hot")], 0, lines
    ).encode()


def heard(content: bytes, directory: Path) -> tuple[list[Record], list[str]]:
    """What rank 0 makes of this content; the directory is used again and again."""
    facts, kept = RunFacts.of({"world_size": PLACE.world_size}), KeptBlocks(directory, 0, 0)
    job = Job(PLACE, make_identity(0), facts, directory, kept)
    gathering = Gathering(job, _NobodyBeside())  # type: ignore[arg-type]
    records, notes = gathering.take()
    exchange = directory_of(directory, PLACE.key)
    beacon = Outbox(exchange, "1").beacon()
    assert beacon is not None
    (exchange / "node_1.json").write_bytes(content.replace(TOKEN.encode(), beacon.token.encode()))
    last, more = gathering.close()
    return records + last, notes + more


def exchange_findings(content: bytes, directory: Path) -> list[Finding]:
    """Whatever it is: nothing is raised, the gathering goes on, and what it makes of it are records."""
    try:
        records, notes = heard(content, directory)
        unlike = [record for record in records if decode(encode(record)) != record]
    except Exception:
        return [Finding(WORDS, "it raised", traceback.format_exc())]
    ranks = {rank for record in records if isinstance(record, NodeRecord) for rank in record.ranks}
    broken = [
        *(f"the gathering has ended: {note}" for note in notes if note.startswith("nothing is recorded")),
        *(f"no record: {record}" for record in unlike),
        *(f"rank {rank}" for rank in ranks - set(range(PLACE.world_size))),
    ]
    return [Finding(WORDS, what[:300], "") for what in broken]
