"""The profile's `analysis.Instrument`: what the commands that read run files call."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import Instrument
from flagscale_perf.analysis.session import Session
from flagscale_perf.profile.analysis import blocks, compare
from flagscale_perf.profile.analysis.evidence import bounds_of
from flagscale_perf.profile.analysis.extend import METRICS, load
from flagscale_perf.profile.analysis.findings import judge
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.shares import shares_of
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.analysis.timeline import timeline
from flagscale_perf.profile.records import NAMES, RowRecord, Sort
from flagscale_perf.store.tables import Tables, words_of


def report_of(profile: Profile) -> ProfileReport:
    """The report of a profile, with findings and registered metrics."""
    found = ProfileReport(profile)
    found.metrics = {name: make(found) for name, make in METRICS.items()}
    judge(found)
    return found


def read_report(session: Session) -> ProfileReport:
    """The report of a profile. Raises PerfError if it cannot be read."""
    return report_of(read_profile(session))


def _report(session: Session) -> Report:
    load()
    return blocks.report_of(read_report(session))


INSTRUMENT = Instrument(
    report=_report,
    timeline=timeline,
    compare=compare.compare,
    evidence=bounds_of,
    shares=shares_of,
    tables=Tables(
        views={"modules": "select * from records.profile_row"},
        words={RowRecord: {"sort": words_of(Sort)}},
        texts=NAMES,
    ),
)
