"""Jobs compared: what leads them, which the verdict is of, and what other instruments recorded of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.blocks import Note, Report
from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import CompareOptions, Comparison, Gate
from flagscale_perf.analysis.instrument import Instrument, load
from flagscale_perf.analysis.job import Job, sessions_below
from flagscale_perf.analysis.job_report import Part, folded
from flagscale_perf.analysis.jobs import as_jobs
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.whole import Whole
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.store.runs import runs_below


@dataclass(frozen=True)
class _Content:
    """The comparison of what leads, and the job's others: compared, or why not."""

    lead: Comparison
    compared: Mapping[str, Comparison]
    not_compared: Mapping[str, str]

    def as_dict(self) -> Mapping[str, Any]:
        """The lead's dict with the others under "job"."""
        compared = {name: each.as_dict() for name, each in self.compared.items()}
        return {**self.lead.as_dict(), "job": {"compared": compared, "not_compared": dict(self.not_compared)}}


def compare_jobs(
    base: Sequence[Whole], new: Sequence[Whole], options: CompareOptions
) -> tuple[Report, Gate | None]:
    """The report, and the answer to --fail-if-slower, which is for the leading sessions alone. Raises
    PerfError where the jobs are not led by one instrument or cannot be compared.
    """
    wholes = [*base, *new]
    lead = _same_instrument([one.lead for one in wholes])
    result = lead.compare([one.lead for one in base], [one.lead for one in new], options)
    compared, why = dict[str, Comparison](), dict[str, str]()
    for name in dict.fromkeys(member.session.instrument for whole in wholes for member in whole.members):
        try:
            if load(name).offers("compare"):
                compared[name] = _of(name, base, new, replace(options, fail_if_slower=None))
        except PerfError as error:
            why[name] = str(error)
    return _joined(result, compared, why), result.gate


def _of(name: str, base: Sequence[Whole], new: Sequence[Whole], options: CompareOptions) -> Comparison:
    """What an instrument recorded last beside the leading sessions. Raises PerfError where one has none."""
    absent = [whole.lead.path for whole in (*base, *new) if not whole.of(name)]
    if absent:
        raise PerfError(f"nothing of it beside {str(absent[0])!r}")
    ours, theirs = ([whole.of(name)[-1] for whole in side] for side in (base, new))
    return load(name).compare(ours, theirs, options)


def are_trees(*paths: Path) -> bool:
    """Whether runs lie below directories that have none themselves, and not of one job in each."""
    return all(map(_holds_runs, paths)) and not all(map(_is_job, paths))


def _holds_runs(path: Path) -> bool:
    return path.is_dir() and not (job := Job(path)).files and job.logs is None and bool(runs_below(path))


def _is_job(path: Path) -> bool:
    try:
        return bool(Job(path).whole())
    except PerfError:
        return False


def compare_trees(
    base: Sequence[Path], new: Sequence[Path], options: CompareOptions
) -> tuple[Report, Gate | None]:
    """The same of jobs below directories, those of one configuration with each other. Raises PerfError."""
    ours, theirs = ([one for path in side for one in _leading(path)] for side in (base, new))
    lead = _same_instrument([*ours, *theirs])
    if len(ours) == len(theirs) == 1:
        jobs = [Job(one.path.parent).whole_of(one) for one in (*ours, *theirs)]
        return compare_jobs(jobs[:1], jobs[1:], options)
    return lead.trees(ours, theirs, (str(base[0]), str(new[0])), options)


def _leading(path: Path) -> list[Session]:
    """Leading sessions of the jobs below a directory, of the kind that leads all others."""
    found = as_jobs(sessions_below(path)).sessions
    most = max(load(one.instrument).leads for one in found)
    return [one for one in found if load(one.instrument).leads == most]


def _joined(result: Comparison, compared: Mapping[str, Comparison], why: Mapping[str, str]) -> Report:
    report = report_of(result)
    if not compared and not why:
        return report
    others = {name: report_of(each) for name, each in compared.items()}
    parts = [
        Part(name, "", "", True, replace(each, facts=[Note(each.title), *each.facts]))
        for name, each in others.items()
    ]
    said = [Note((f"{name}: ", *_words(each))) for name, each in others.items()]
    return replace(
        report,
        facts=[*report.facts, *said, *(Note(f"{name} not compared: {text}") for name, text in why.items())],
        sections=[*report.sections, *(section for part in parts for section in folded(part))],
        content=_Content(result, compared, why),
    )


def _words(report: Report) -> tuple[Any, ...]:
    return report.title if isinstance(report.title, tuple) else (report.title,)


def _same_instrument(sessions: Sequence[Session]) -> Instrument:
    """The one of all of them. Raises PerfError where it is not one."""
    first, instrument = sessions[0], load(sessions[0].instrument)
    for one in sessions:
        if one.instrument != first.instrument:
            what, other = (load(each.instrument).what or f"a {each.instrument}" for each in (one, first))
            raise PerfError(
                f"{str(one.path)!r} is {what}, and {str(first.path)!r} is {other}; name run files of one"
                " instrument, or add --instrument NAME for what both jobs have"
            )
    return instrument
