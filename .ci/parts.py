"""Runs the parts of .ci/parts.toml one after another, all of them whatever fails, and says at the end how
each ended. `.ci/run` and `make test-all` are this.

python .ci/parts.py [--all] [PART ...]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import textwrap
import threading
import time
import tomllib
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

HERE = Path(__file__).resolve().parent
COULD_NOT_RUN = 77
OK, FAILED, SKIPPED, NOT_RUN = "ok", "FAILED", "skipped", "not run"
# Arguments of `make test-all` are not meant for the targets of its parts.
NOT_PASSED_ON = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "ARGS")
WIDTH = 80
# What a part has printed is read by then; what it left running may hold its output for ever.
LAST_WORDS_S = 10
# As many may have had too little of a busy machine; of more than these, something is broken.
FEW = 5
_FAILING = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - .*)?$")
_SUMMARY = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+|no tests ran) in [\d.]+s.*$")
_COLOUR = re.compile(r"\x1b\[[\d;]*m")


@dataclass(frozen=True)
class Part:
    """A row of the table; .ci/parts.toml says what its fields mean."""

    name: str
    run: str
    markers: tuple[str, ...] = ()
    because: str = ""
    variable: str = ""
    again: str = ""


@dataclass
class Ended:
    """How a part ended.

    Attributes:
        summaries: lines in which pytest sums up, as it printed them.
        failing: the tests that failed, as pytest names them.
        says: why the part did not run.
    """

    part: Part
    result: str
    seconds: float = 0.0
    summaries: list[str] = field(default_factory=list)
    failing: list[str] = field(default_factory=list)
    says: str = ""


def read_parts(path: Path) -> list[Part]:
    """The table's rows."""
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["part"]
    return [Part(**(row | {"markers": tuple(row.get("markers", ()))})) for row in rows]


def environment(repo: Path, absent: list[str]) -> dict[str, str]:
    """Of the parts: what .ci/install_tools brings is on the path, and a skip that no table names is a failure
    (tests/skips.py).
    """
    kept = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    path = os.pathsep.join((str(repo / "build" / "tools"), kept.get("PATH", os.defpath)))
    return kept | {"PATH": path, "CI": "true"} | dict.fromkeys(absent, "1")


def run(part: Part, repo: Path, absent: list[str]) -> Ended:
    """Runs its command; and where that fails because of a few tests, those once more, by themselves."""
    ended = run_once(part, repo, absent)
    if ended.result == FAILED and part.again and 1 <= len(ended.failing) <= FEW:
        again = run_once(replace(part, run=part.again), repo, absent)
        ended.seconds += again.seconds
        if again.result == OK:
            ended.result = OK
            ended.says = f"; not beside others, but by themselves: {', '.join(ended.failing)}"
    return ended


def run_once(part: Part, repo: Path, absent: list[str]) -> Ended:
    """Runs its command and passes on what it prints."""
    print(f"\n--- {part.name}: {part.run}", flush=True)
    began = time.monotonic()
    process = subprocess.Popen(
        ["bash", "-c", part.run], cwd=repo, env=environment(repo, absent),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout is not None
    ended = Ended(part, FAILED)
    reader = threading.Thread(target=_pass_on, args=(process.stdout, ended), daemon=True)
    reader.start()
    code = process.wait()
    reader.join(timeout=LAST_WORDS_S)
    ended.seconds = time.monotonic() - began
    if code == 0:
        ended.result = OK
    elif code == COULD_NOT_RUN and ended.says:
        ended.result = SKIPPED
    return ended


def _pass_on(output: IO[bytes], ended: Ended) -> None:
    for line in output:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
        text = _COLOUR.sub("", line.decode(errors="replace")).rstrip()
        if _SUMMARY.match(text):
            ended.summaries.append(text)
        elif failing := _FAILING.match(text):
            ended.failing.append(failing[1])
        elif text.startswith("SKIPPED: "):
            ended.says = text.removeprefix("SKIPPED: ")


def counts(summaries: list[str]) -> str:
    """All of pytest's summaries as one."""
    found: Counter[str] = Counter()
    for line in summaries:
        for number, word in re.findall(r"(\d+) ([a-z]+)", line.partition(" in ")[0]):
            found["error" if word == "errors" else word] += int(number)
    shown = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
    return ", ".join(f"{found[word]:,} {word}" for word in shown if found[word])


def table(ended: list[Ended]) -> str:
    """A row for each part, below pytest's own lines."""
    wide = max(len(each.part.name) for each in ended)
    lines = [line for each in ended for line in each.summaries] + [""]
    lines.append(f"{'part':<{wide}}   time  result   counts")
    for each in ended:
        minutes, seconds = divmod(round(each.seconds), 60)
        begin = f"{each.part.name:<{wide}}  {minutes:>2}:{seconds:02}  {each.result:<7}  "
        said = each.says if each.result in (SKIPPED, NOT_RUN) else counts(each.summaries) + each.says
        lines += textwrap.wrap(begin + said, WIDTH, subsequent_indent=" " * len(begin), drop_whitespace=True)
    minutes, seconds = divmod(round(sum(each.seconds for each in ended)), 60)
    return "\n".join([*lines, f"{'all':<{wide}}  {minutes:>2}:{seconds:02}  "]).rstrip()


def run_all(parts: list[Part], repo: Path, is_all: bool) -> list[Ended]:
    """Each in its turn."""
    absent: list[str] = []
    ended: list[Ended] = []
    for part in parts:
        if part.because and not is_all:
            ended.append(Ended(part, NOT_RUN, says=f"make test-all runs it: {part.because}"))
            continue
        ended.append(run(part, repo, absent))
        if ended[-1].result == SKIPPED and part.variable:
            absent.append(part.variable)
    return ended


def main(arguments: list[str], repo: Path = HERE.parent) -> int:
    """1 where a part failed."""
    parts = read_parts(repo / ".ci" / "parts.toml")
    parser = argparse.ArgumentParser(prog=".ci/parts.py", description="Runs the parts of .ci/parts.toml.")
    parser.add_argument("--all", action="store_true", help="every part, as before a release")
    parser.add_argument("part", nargs="*", help="these alone: " + ", ".join(part.name for part in parts))
    args = parser.parse_args(arguments)
    unknown = set(args.part) - {part.name for part in parts}
    if unknown:
        parser.error(
            f"no part {', '.join(sorted(unknown))}: there are {', '.join(part.name for part in parts)}"
        )
    chosen = [part for part in parts if part.name in args.part] if args.part else parts
    ended = run_all(chosen, repo, args.all or bool(args.part))
    print("\n--- ended\n" + table(ended), flush=True)
    return int(any(each.result == FAILED for each in ended))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
