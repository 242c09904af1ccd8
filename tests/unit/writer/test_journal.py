"""Events that the writer makes itself."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.spine.live import FindingRecord
from flagscale_perf.spine.records import EventRecord, RunEnd
from flagscale_perf.writer.instrument import Remark
from flagscale_perf.writer.journal import Journal
from flagscale_perf.writer.messages import Message, Trouble


def test_reports_and_remarks_become_events_and_the_urgent_ones_are_printed() -> None:
    sent: list[Message] = []
    journal = Journal(sent.append, lambda: 7, with_tracebacks=False)
    end = RunEnd("completed", 1, 2, 0)
    journal.report("note", "works again")
    journal.report("failure", "disk full")
    journal.waiting += journal.recorded(
        [end, Remark("slow", "steps 1 to 9"), Remark("suspect", "250 %", True)]
    )
    records = journal.take()
    assert (records[2], journal.take()) == (end, [])
    assert [(record.name, record.iteration, record.text) for record in records if record is not end] == [
        ("note", 7, "works again"),
        ("failure", 7, "disk full"),
        ("slow", 7, "steps 1 to 9"),
        ("suspect", 7, "250 %"),
    ]
    assert sent == [Trouble("flagscale_perf: disk full"), Trouble("flagscale_perf: 250 %")]


def test_with_tracebacks_a_failure_shows_where_it_was() -> None:
    sent: list[Message] = []
    journal = Journal(sent.append, lambda: 0, with_tracebacks=True)
    try:
        raise ValueError("planted")
    except ValueError:
        journal.report("failure", "something")
    assert (sent[1], sent[-1]) == (
        Trouble("Traceback (most recent call last):"),
        Trouble("ValueError: planted"),
    )


def test_a_finding_is_told_stamped_and_followed_by_its_event() -> None:
    sent: list[Message] = []
    told: list[FindingRecord] = []
    journal = Journal(sent.append, lambda: 7, with_tracebacks=False)
    journal.tell = told.append
    hang = FindingRecord("hang", "begins", "rank 3 waits", iteration=5)
    found, event = journal.recorded([hang])
    assert told == [found] and found.at_ns > 0
    assert event == EventRecord("hang", found.at_ns, 5, "rank 3 waits")
    assert sent == [Trouble("flagscale_perf: rank 3 waits")]
    assert journal.recorded([replace(hang, is_logged=False, at_ns=9, iteration=0)]) == [
        replace(hang, is_logged=False, at_ns=9, iteration=7)
    ]
    assert len(sent) == 1, "what is not in the log is said elsewhere"
