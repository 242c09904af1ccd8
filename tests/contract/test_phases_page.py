"""docs/metrics.md lists every phase, with its timers and with what its time is."""

from __future__ import annotations

import re

from flagscale_perf.training.phases import GROUPS, PHASES, TABLE, Kind, of_kind
from tests.conftest import REPO

PAGE = (REPO / "docs/metrics.md").read_text(encoding="utf-8")


def names_in(row: str) -> tuple[str, ...]:
    """The first cell's; `_clip` behind another name is `optimizer_clip`."""
    names = re.findall(r"`(\w+)`", row.split("|")[1])
    return tuple(f"optimizer{name}" if name.startswith("_") else name for name in names)


def rows_of(begin: str, end: str) -> list[str]:
    """Rows of the table between these lines, without its head."""
    section = PAGE[PAGE.index(begin) : PAGE.index(end)]
    return [line for line in section.splitlines() if line.startswith("| `")]


def test_the_table_of_phases_has_them_all() -> None:
    listed = [
        name for row in rows_of("| phase | the host's timers", "- Other timers") for name in names_in(row)
    ]
    assert sorted(listed) == sorted(PHASES)


def test_work_and_waiting_are_as_the_page_says() -> None:
    listed = [names_in(row) for row in rows_of("### Work and waiting", "### Who is late")]
    assert listed == [of_kind(kind) for kind in (Kind.WORK, Kind.WAITING, Kind.BOTH)]


def test_the_page_names_the_groups_and_what_of_no_timer_of_the_host_is() -> None:
    groups = PAGE[PAGE.index("The text log shows shares") : PAGE.index("Bubble is a part of Pipe")]
    assert [group for group in GROUPS if group not in groups] == []
    for timer in (*TABLE["zero_grad"].timers, *TABLE["exposed_stat_comm"].timers):
        assert f"none; `{timer}` in a loop of your own" in PAGE
