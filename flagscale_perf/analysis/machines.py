"""Which run files are of one session: a job has one for each machine or container."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import age_of
from flagscale_perf.store.run_file import RunFile


def sessions_of(paths: Iterable[Path]) -> list[Session]:
    """The sessions of run files. Raises PerfError where one cannot be read."""
    return grouped([RunFile(path) for path in paths])


def grouped(files: Sequence[RunFile]) -> list[Session]:
    """The sessions of these files, by directory and age."""
    made = map(Session, groups(files))
    return sorted(made, key=lambda one: (one.path.parent, age_of(one.path, one.header)))


def groups(files: Sequence[RunFile]) -> list[list[RunFile]]:
    """The files of each session. Each is in one; a job's newest comes first."""
    near: defaultdict[tuple[Path, object], list[RunFile]] = defaultdict(list)
    stretches = _stretches(files)
    for file in files:
        stretch = stretches.get(file.path, file.path)
        near[file.path.parent, stretch].append(file)
        near[file.path.parent.parent, stretch].append(file)
    made, taken = list[list[RunFile]](), set[Path]()
    newest = sorted(files, key=lambda file: age_of(file.path, file.header), reverse=True)
    for own in sorted(newest, key=lambda file: len(file.path.parts)):  # what is copied lies below
        if own.path not in taken:
            beside = near[own.path.parent, stretches.get(own.path, own.path)]
            around = [each for each in beside if each.path not in taken]
            made.append([own, *mates_of(own, around)])
            taken.update(each.path for each in made[-1])
    return made


def _stretches(files: Iterable[RunFile]) -> dict[Path, int]:
    """A number for each file that is of a job: the same as long as one of the job's files follows another
    without a break.
    """
    ordered = [
        ((file.header.instrument, str(file.header.facts["job"])), file.header.start_wall_ns, file)
        for file in files
        if "job" in file.header.facts
    ]
    found, last, ended_ns = dict[Path, int](), ("", ""), 0
    for number, (job, start_ns, file) in enumerate(sorted(ordered, key=lambda one: one[:2])):
        if job != last or start_ns > ended_ns:
            last, ended_ns, first = job, file.ended_ns, number
        found[file.path] = first
        ended_ns = max(ended_ns, file.ended_ns)
    return found


def mates_of(own: RunFile, around: Iterable[RunFile]) -> list[RunFile]:
    """Run files of the same job and the same time: a job has one for each machine or container."""
    headers, found = [own.header], list[RunFile]()
    if "job" not in own.header.facts:
        return found
    for other in around:
        header = other.header
        if (
            is_of_job(own.header, header)
            and header.start_wall_ns <= own.ended_ns
            and own.header.start_wall_ns <= other.ended_ns
            and header not in headers  # not the file itself, nor a copy of one
        ):
            headers.append(header)
            found.append(other)
    return found


def is_of_job(own: RunHeader, other: RunHeader) -> bool:
    """Whether both are of one instrument and one job; runs in one directory that name no job are one job."""
    return own.instrument == other.instrument and own.facts["job"] == other.facts.get("job", own)
