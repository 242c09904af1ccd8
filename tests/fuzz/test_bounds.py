"""Files that are large in one way only, through every command that reads one, and as much as is kept of them
through every format: memory stays bounded, and no text gets out as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.spine.jsonl import MAX_TEXT, encode
from flagscale_perf.training.rank_records import MAX_ENTRIES, NodeRecord, RanksRecord, StragglerRecord
from tests.conftest import RunPython
from tests.fakes import make_event, make_facts, make_header, make_interval, make_step
from tests.fuzz.mutations import TEXTS
from tests.fuzz.target import NAME, UNSAFE

PEAK_MB = 300
CPU_S = (
    120  # far more than any of them takes; a reader whose time grows with the square of something passes it
)
MEASURED = f"""
import resource, sys
from flagscale_perf.cli import main
resource.setrlimit(resource.RLIMIT_CPU, ({CPU_S}, {CPU_S}))
code = main(sys.argv[1:])
with open("/proc/self/status") as status:  # ru_maxrss would count what was there before the exec, too
    (peak_kib,) = [int(line.split()[1]) for line in status if line.startswith("VmHWM:")]
print(peak_kib // 1024, file=sys.stderr)
sys.exit(code)
"""
LONG = "".join(text for text in TEXTS if len(text) < 1000 and text != "\ud800") * 1000
HUGE = LONG * 8  # a line of 1 MB and more is refused whatever is in it
NUMBERS = [1] * 30_000
FIRST = 123_450  # an iteration that each block puts its own in the place of
Lines = Iterator[bytes]


def line(kind: str, record: Any, **changed: Any) -> bytes:
    """A record's line with other values, also such as `encode` would not write."""
    fields = record._asdict() if hasattr(record, "_asdict") else asdict(record)
    return json.dumps({"kind": kind} | fields | changed).encode() + b"\n"


def run() -> Lines:
    """A short run whose every fact wants to be something else."""
    yield encode(
        make_header(
            facts=make_facts(
                hostname=LONG[:5000], script="=cmd|' /C calc'!A0", device=TEXTS[2], model_family=TEXTS[4]
            )
        )
    )
    for iteration in range(1, 40):
        yield encode(make_step(iteration, warmup=int(iteration == 1)))
        if iteration % 10 == 0:
            yield encode(make_interval(iteration, throttle=LONG[:MAX_TEXT]))


def straggler(number: int, ranks: int = 1) -> StragglerRecord:
    slow = [number * 1000 + place for place in range(ranks)]
    return StragglerRecord(
        number, number, False, slow, "node0", "NVIDIA H200", 0, "forward", 5, 100, "peers", None
    )


def many_names() -> Lines:
    one = encode(make_event("NAME"))
    yield from (one.replace(b"NAME", b"name %d" % number) for number in range(300_000))


def many_stragglers() -> Lines:
    before, after = encode(straggler(0)).split(b"[0]")
    for number in range(0, 15_000_000, 1000):
        yield b"%s%s%s" % (before, json.dumps([*range(number, number + 500)]).encode(), after)


def long_texts() -> Lines:
    for number in range(40):
        text = f"{number}{HUGE}"[: 900_000 // 6]
        yield line("event", make_event(), text=text)
        yield line("event", make_event(), name=text)
        yield line("interval", make_interval(), throttle=text)
        yield line("straggler", straggler(number), cause=text)
        yield line("node", NodeRecord("", [0], [1], ["d"], [0]), hostname=text)
        yield line("node", NodeRecord("node0", [0], [1], [], [0]), devices=[text])


def long_lists() -> Lines:
    lists = ("iteration_ns", "work_ns", "wait_ns", "data_ns", "memory_peak_bytes", "silent")
    ranks = RanksRecord(FIRST, FIRST + 9, 1, [], [], [], [], [], [], 0)
    block = line("ranks", ranks, **dict.fromkeys(lists, NUMBERS))
    for number in range(40):
        yield block.replace(b"%d" % FIRST, b"%d" % (number * 10)).replace(
            b"%d" % (FIRST + 9), b"%d" % (number * 10 + 9)
        )
        yield line("interval", make_interval(), phases_ns={f"{number} {place}": 1 for place in range(50_000)})


def as_much_as_is_read() -> Lines:
    """Every text and list as long as it may be, as often as one is kept."""
    for name in range(50):
        yield from (encode(make_event(f"{name}", text=LONG[:MAX_TEXT])) for _ in range(50))
    for number in range(2000):
        yield encode(make_interval(number * 10, throttle=LONG[:MAX_TEXT]))
    for number in range(200):
        figures = [[number + place for place in range(MAX_ENTRIES)] for _ in range(5)]
        yield encode(RanksRecord(number * 10, number * 10 + 9, 1, *figures, silent=[], silent_count=0))


CASES: dict[str, Callable[[], Iterable[bytes]]] = {
    case.__name__: case for case in (many_names, many_stragglers, long_texts, long_lists, as_much_as_is_read)
}
READERS = [("report", "--full"), ("watch", "--once"), ("trace-export",)]
FORMATS = [
    *(("report", "--format", name) for name in ("html", "markdown", "json", "csv", "png")),
    ("report", "--all-sessions"),
    *(("compare", "--format", name) for name in ("text", "html")),
]


def cases(commands: list[tuple[str, ...]]) -> list[object]:
    """The first command, and in `make test-all` the others."""
    marks = [(), *[pytest.mark.long] * (len(commands) - 1)]
    return [
        pytest.param(each, id=" ".join(each), marks=mark) for each, mark in zip(commands, marks, strict=True)
    ]


def write(case: Callable[[], Iterable[bytes]], directory: Path) -> Path:
    with (directory / NAME).open("wb") as file:
        file.writelines(run())
        file.writelines(case())
    return directory


@pytest.fixture(scope="module", params=CASES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(CASES[request.param], tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(as_much_as_is_read, tmp_path_factory.mktemp("full"))


def assert_bounded_and_harmless(
    run_python: RunPython, directory: Path, out: Path, words: tuple[str, ...]
) -> None:
    paths = [directory] * (2 if words[0] == "compare" else 1)
    to_file = [] if words[0] == "watch" or "--all-sessions" in words else ["-o", out]
    result = run_python("-c", MEASURED, *words, *paths, *to_file, timeout_s=600)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    assert int(result.stderr.splitlines()[-1]) <= PEAK_MB
    shown = result.stdout + (out.read_text() if out.exists() and "png" not in words else "")
    if "html" in words and words[0] == "report":
        shown = shown.partition("</style>")[0]
    assert UNSAFE.search(shown) is None


@pytest.mark.parametrize("words", cases(READERS))
def test_reading_takes_bounded_memory_and_no_text_does_harm(
    run_python: RunPython, directory: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert_bounded_and_harmless(run_python, directory, tmp_path / "out", words)


@pytest.mark.parametrize("words", cases(FORMATS))
def test_showing_as_much_as_is_read_takes_bounded_memory_and_no_text_does_harm(
    run_python: RunPython, full: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    assert_bounded_and_harmless(run_python, full, tmp_path / "out", words)
