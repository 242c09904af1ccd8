"""Ways to damage a run file. Each takes the generator that decides and the file's content, and returns
another content.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path

from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, encode
from flagscale_perf.spine.records import KINDS
from flagscale_perf.training.rank_records import NodeRecord, RanksRecord, StragglerRecord
from tests import bench_runs, profile_runs, rpc_sessions, trace_runs
from tests.fakes import make_phases, sample_run
from tests.schedules import noise, recorded

Mutation = Callable[[random.Random, bytes], bytes]

# What a terminal, a reader or a counter could take amiss.
TEXTS = [
    *("\x1b]0;owned\x07", "\x1b[2J\x1b[1;1H", "\x9b31m", "\x90q\x9c"),  # terminal
    *(
        "\u202egnp.exe",
        "\u2066\u2069",
        "\u200f",
        "\u2028\u2029\x85",
        "\r\n\x0b",
        "\ud800",
        "\x00",
    ),  # lines and their direction
    *(
        "../../../etc/passwd",
        "=cmd|' /C calc'!A0",
        "<script>alert(1)</script>",
        "[red]x[/red]",
        "[/]",
        "{0.__class__}",
        "%s%n",
    ),
    *("x" * 100_000, "", "é" * 300),
]
NUMBERS = [
    "0",
    "-0",
    "-1",
    "1e999",
    "-1e999",
    "1e308",
    "5e-324",
    "9" * 6000,
    str(2**63),
    str(2**127 - 1),
    str(-(2**63) + 1),
    "NaN",
    "1.5",
    "7",
]
OTHERS = [
    "null",
    "true",
    "{}",
    "[]",
    "[[]]",
    '{"a":{"b":[1,{}]}}',
    "[" * 900 + "]" * 900,
    "[" * 100_000,
    '{"a":' * 5000 + "1" + "}" * 5000,
]


def corpus() -> list[bytes]:
    """Whole run files that hold records of every kind."""
    ranks = RanksRecord(1, 10, 1, [100, 90], [60, None], [30, 20], [1, None], [10**9, None], [3], 1)
    slow = StragglerRecord(1, 10, False, [1], "node0", "NVIDIA H200", 0, "forward", 5, 100, "peers", None)
    others = [make_phases(2), NodeRecord("node0", [0, 1], [7, 8], ["NVIDIA H200"] * 2, [0, 0]), ranks, slow]
    others += recorded(2, range(2, 12), noise(0.05, 1))
    run = sample_run()
    training = [b"".join(map(encode, records)) for records in (run, [*run[:3], *others, *run[3:]], run[:1])]
    return [*training, *_of_other_instruments()]


def _of_other_instruments() -> list[bytes]:
    """A whole run file of each: a profile, a queue's trace, calls, an experiment."""
    with tempfile.TemporaryDirectory() as made:
        paths = []
        for name in ("profile", "trace", "calls", "experiment"):
            (directory := Path(made) / name).mkdir()
            paths.append(_WRITTEN[name](directory))
        return [path.read_bytes() for path in paths]


def _write_experiment(directory: Path) -> Path:
    with bench_runs.book_in(directory) as book, book.part("bandwidth", None, {}) as part:
        for size in (bench_runs.GB // 4, bench_runs.GB):
            bench_runs.collective(part, "all_reduce", size, [size / 1e10] * 5)
            bench_runs.message(part, (0, 1), [size / 1e10] * 5, size)
        bench_runs.local(part, "copy", 0, [0.1] * 5)
    (path,) = directory.glob("*.jsonl")
    return path


_WRITTEN: dict[str, Callable[[Path], Path]] = {
    "profile": lambda directory: profile_runs.make_profile().write(directory),
    "trace": lambda directory: trace_runs.pipeline(4, 8).write(directory),
    "calls": lambda directory: rpc_sessions.write_run(
        directory, [*rpc_sessions.llama_calls(), rpc_sessions.make_served()]
    ),
    "experiment": _write_experiment,
}


def flip_bytes(chance: random.Random, content: bytes) -> bytes:
    """Some bytes become others."""
    changed = bytearray(content)
    for _ in range(chance.randint(1, 8) if changed else 0):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def truncate(chance: random.Random, content: bytes) -> bytes:
    """The end is missing."""
    return content[: chance.randint(0, len(content))]


def splice(chance: random.Random, content: bytes) -> bytes:
    """Lines are lost, doubled, in another order, or joined."""
    lines = content.splitlines(keepends=True) or [b""]
    for _ in range(chance.randint(1, 4)):
        place, other = chance.randrange(len(lines)), chance.randrange(len(lines))
        what = chance.randrange(4)
        if what == 0:
            lines[place] = lines[place].rstrip(b"\n")
        elif what == 1:
            lines.insert(place, lines[other])
        elif what == 2:
            lines[place] = lines[place][: len(lines[place]) // 2] + lines[other][len(lines[other]) // 2 :]
        elif len(lines) > 1:
            del lines[place]
    return b"".join(lines)


def change_values(chance: random.Random, content: bytes) -> bytes:
    """A few values become hostile ones; written as text, so that JSON's own limits do not protect the
    reader.
    """
    lines = content.splitlines(keepends=True)
    for _ in range(chance.randint(1, 4)):
        place = 0 if chance.random() < 0.3 else chance.randrange(len(lines))
        lines[place] = _with_hostile_value(chance, lines[place])
    return b"".join(lines)


def _with_hostile_value(chance: random.Random, line: bytes) -> bytes:
    try:
        fields = json.loads(line)
        inside = [value for value in fields.values() if isinstance(value, dict) and value]
    except (ValueError, AttributeError, RecursionError):  # an earlier round did that
        return line
    mapping = chance.choice([fields, *inside])
    mark = '"\0here"'
    mapping[chance.choice([*mapping, "new"])] = json.loads(mark.replace("\0", ""))
    try:
        text = json.dumps(fields)
    except (ValueError, RecursionError):
        return line
    value = chance.choice([json.dumps(chance.choice(TEXTS)), chance.choice(NUMBERS), chance.choice(OTHERS)])
    return text.replace('"here"', value).encode() + b"\n"


def insert_line(chance: random.Random, content: bytes) -> bytes:
    """A line of another kind is put in: too long, too deep, of NULs, of another encoding, with a key
    twice.
    """
    line = chance.choice(
        [
            b"x" * (MAX_LINE_BYTES + 5),
            b"[" * 500_000,
            b"\0" * 4096,
            '{"kind":"step"}'.encode("utf-16"),
            b"\xef\xbb\xbf{}",
            b"\xff\xfe",
            b"",
            b'{"kind":"end","kind":"step","reason":"x","reason":"completed","end_wall_ns":1,"last_iteration":1,"dropped":0}',
            json.dumps({"kind": chance.choice([*KINDS])}).encode(),
            b'{"kind":"step","iteration":' + b"9" * 6000 + b"}",
        ]
    )
    lines = content.splitlines(keepends=True)
    lines.insert(chance.randint(0, len(lines)), line + b"\n")
    return b"".join(lines)


def other_encoding(chance: random.Random, content: bytes) -> bytes:
    """The whole file was saved by an editor that means well."""
    encoding = chance.choice(["utf-16", "utf-32", "utf-8-sig"])
    return content.decode("utf-8", "replace").encode(encoding)


def other_line_ends(chance: random.Random, content: bytes) -> bytes:
    """So was this one."""
    return content.replace(b"\n", chance.choice([b"\r\n", b"\r", b"\n\n", b"\0\n"]))


MUTATIONS: list[Mutation] = [
    flip_bytes,
    truncate,
    splice,
    change_values,
    change_values,
    change_values,
    insert_line,
    other_encoding,
    other_line_ends,
]


def mutated(seed: int, seeds: list[bytes]) -> bytes:
    """The damaged file of that number: the same every time."""
    chance = random.Random(seed)
    content = chance.choice(seeds)
    for _ in range(chance.randint(1, 3)):
        content = chance.choice(MUTATIONS)(chance, content or b"\n")
    return content
