"""Recommendations in two languages."""

from __future__ import annotations

from diagnosis import rules
from diagnosis.words import CHINESE, ENGLISH

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import rules_in
from tests.rpc_sessions import REQUIREMENT_LOG


def test_every_finding_has_its_words_in_chinese() -> None:
    names = {rule.name for rule in rules_in(rules)}
    assert set(CHINESE.titles) == set(CHINESE.changes) == names


def test_those_of_the_requirement_are_its_own(tmp_path) -> None:
    from flagscale_perf.rpc.analysis.instrument import read_calls

    (tmp_path / "a.log").write_text(REQUIREMENT_LOG)
    found = rules.judge_split(read_calls(open_session(tmp_path / "a.log"))).findings[0]
    assert CHINESE.of(found) == ("Serialization占61.4%的时间", CHINESE.changes["serialization"])
    title, changes = ENGLISH.of(found)
    assert title == "Serialization takes 61.4 % of the time"
    assert changes[0].startswith("--payload shared: put arrays into shared memory")
