"""`make cite`: copies figures from benchmarks/results into the pages that show them.

A page shows a file of results, or those of its lines in which an expression is found, as the block behind a
line `<!-- cited: FILE -->` or `<!-- cited: FILE | EXPRESSION -->`. No figure of a benchmark is typed in,
and none outlives a rerun that finds another.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

REPO = Path(__file__).parents[1]
PLACE = re.compile(
    r"^<!-- cited: (?P<file>\S+)(?: \| (?P<lines>[^\n]+))? -->\n```\n(?P<shown>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
MARK = "<!-- cited:"


def pages(repo: Path = REPO) -> list[Path]:
    """What may cite."""
    return sorted([*repo.glob("*.md"), *(repo / "docs").glob("*.md"), *repo.glob("examples/*/*.md")])


def cited(page: str, repo: Path = REPO) -> str:
    """The page with every citation as the results are now. Raises ValueError for one that shows nothing."""
    if len(PLACE.findall(page)) != page.count(MARK):
        raise ValueError(f"a line '{MARK} ... -->' has no block between ``` right behind it")
    return PLACE.sub(
        lambda place: place[0].replace(_body(place["shown"]), _body(_lines(place, repo)), 1), page
    )


def _body(shown: str) -> str:
    return f"```\n{shown}```"


def _lines(place: re.Match[str], repo: Path) -> str:
    lines = (repo / place["file"]).read_text(encoding="utf-8").splitlines()
    kept = [line for line in lines if place["lines"] is None or re.search(place["lines"], line)]
    if not kept:
        raise ValueError(f"no line of {place['file']} has {place['lines']!r}")
    return "\n".join(kept) + "\n"


def main() -> int:
    """Writes the pages that change, and says which."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = cited(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(f"{page.relative_to(REPO)}: citations renewed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
