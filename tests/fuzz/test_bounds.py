"""Files that are large in one way only, through every command and every format: memory stays bounded, and no
text gets out as it is.
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
    yield from (encode(make_event(f"name {number}")) for number in range(300_000))


def many_stragglers() -> Lines:
    yield from (encode(straggler(number, 500)) for number in range(15_000))


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
    for number in range(40):
        ranks = RanksRecord(number * 10, number * 10 + 9, 1, [], [], [], [], [], [], 0)
        yield line("ranks", ranks, **dict.fromkeys(lists, NUMBERS))
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
FORMATS = [
    *(("report", "--format", name) for name in ("text", "markdown", "json", "csv", "html", "png")),
    ("report", "--all-sessions"),
    ("watch", "--once"),
    ("trace-export",),
    *(("compare", "--format", name) for name in ("text", "html")),
]


@pytest.fixture(scope="module", params=CASES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("run")
    with (made / NAME).open("wb") as file:
        file.writelines(run())
        file.writelines(CASES[request.param]())
    return made


@pytest.mark.parametrize("words", FORMATS, ids=" ".join)
def test_memory_is_bounded_and_texts_are_harmless(
    run_python, directory: Path, tmp_path: Path, words: tuple[str, ...]
) -> None:
    out = tmp_path / "out"
    paths = [directory] * (2 if words[0] == "compare" else 1)
    to_file = [] if words[0] == "watch" or "--all-sessions" in words else ["-o", out]
    result = run_python("-c", MEASURED, *words, *paths, *to_file, timeout_s=600)
    assert (result.returncode, "Traceback" in result.stderr) == (0, False), result.stderr
    assert int(result.stderr.splitlines()[-1]) <= PEAK_MB
    shown = result.stdout + (out.read_text() if out.exists() and "png" not in words else "")
    assert (
        UNSAFE.search(
            shown if "html" not in words or words[0] == "compare" else shown.partition("</style>")[0]
        )
        is None
    )
