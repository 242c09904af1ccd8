"""`flagscale-perf report`: summarises a session from its directory."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import installed, load
from flagscale_perf.analysis.job import Job, begun
from flagscale_perf.analysis.job_report import report_of
from flagscale_perf.analysis.lake import write_tables
from flagscale_perf.analysis.whole import Whole
from flagscale_perf.cli.base import Command, add_cache, add_instrument, add_run, add_session, local_path
from flagscale_perf.cli.instruments import say, say_others
from flagscale_perf.cli.output import STDOUT, add_output, check_place, format_of, put, put_next, put_report
from flagscale_perf.report import html, text
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import printable

# Each a module of flagscale_perf.report with `render(report)`.
FORMATS = ("text", "markdown", "html", "json", "csv", "png", "brief")
PARQUET = "parquet"
EXIT_NOTHING_READ = 1


class ReportCommand(Command):
    """Shows what a run did and what holds it back, from the run file alone."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: the run, and what to make of it."""
        add = parser.add_argument
        add_run(parser)
        which = parser.add_mutually_exclusive_group()
        which.add_argument(
            "--all-sessions",
            action="store_true",
            help="training only: where the time of all sessions in the directory went",
        )
        add_session(which)
        add_instrument(which)
        add(
            "--full",
            action="store_true",
            help="print the whole report, not only what fits one screen: what was found, where time goes",
        )
        add(
            "--page",
            type=local_path,
            metavar="FILE",
            help="beside what is printed, write the whole report as an HTML page",
        )
        add(
            "--sample",
            metavar="PARTITION:INDEX|KEY|latest",
            help="queue traces only: who wrote this sample's fields, who got them, how long it waited",
        )
        add(
            "--patch",
            action="store_true",
            help="training only: print nothing but the settings that the findings advise, as a yaml overlay"
            " for FlagScale or as arguments",
        )
        add_cache(parser)
        add_output(
            parser,
            (*FORMATS, PARQUET),
            "text (default), markdown, html, json, csv (a row an interval, or a call), png, brief (2,000"
            " tokens at most, for a program that reads text), or parquet: a directory with a table of each"
            " kind of records",
        )

    def run(self, args: Namespace) -> int:
        """1 where nothing behind the header can be read. Raises PerfError where there is no run."""
        if args.patch:
            return _patch(args)
        if args.format == PARQUET:
            return _tables(args)
        chosen = format_of(args, FORMATS)
        if args.page is not None:
            check_place(args.page)
        if args.all_sessions:
            return _history(args, chosen)
        job = begun(args.run, args.session, say)
        whole, asked = job.whole(args.instrument), args.sample
        report = report_of(whole) if asked is None else _sample(whole, asked)
        is_whole = args.full or args.format or args.output or args.sample is not None
        if is_whole:
            put_report(report, chosen, args.output)
        else:
            put(text.screen(report), None)
        if args.page is not None:
            put(html.render(report), args.page)
        if not is_whole:
            put_next(args.run, args.page, args.session)
        if args.session is args.instrument is None:
            say_others(job, whole.sessions)
        return _judged(report, chosen)


def _sample(whole: Whole, asked: str) -> Report:
    """Of the first session of the job that knows samples; else it is refused."""
    knowing = [one for one in whole.sessions if load(one.instrument).offers("sample")]
    session = (knowing or whole.sessions)[0]
    return load(session.instrument).sample(session, asked)


def _patch(args: Namespace) -> int:
    for option in ("page", "sample", "all_sessions", "format", "full"):
        if getattr(args, option):
            flag = "--" + option.replace("_", "-")
            raise PerfError(f"{flag} goes with no patch; leave it out, or --patch")
    whole = begun(args.run, args.session, say).whole(args.instrument)
    for session in whole.sessions:
        instrument = load(session.instrument)
        if instrument.offers("patch"):
            put(instrument.patch(session), args.output)
            return 0
    raise PerfError(
        f"{str(args.run)!r} has no training, and only its findings name settings; leave --patch out"
    )


def _tables(args: Namespace) -> int:
    directory: Path | None = args.output
    if directory is None or directory == STDOUT or (directory.exists() and not directory.is_dir()):
        raise PerfError("--format parquet makes a directory of tables; name one, such as -o tables")
    for option in ("page", "sample", "all_sessions"):
        if getattr(args, option):
            flag = "--" + option.replace("_", "-")
            raise PerfError(f"{flag} goes with no tables; leave it out, or --format parquet")
    whole = begun(args.run, args.session, say).whole(args.instrument)
    session = whole.lead
    for name in dict.fromkeys(one.session.instrument for one in whole.members):
        say(f"tables of the {session.instrument} alone; --instrument {name} for those of the {name}")
    made = write_tables(session, directory, say)
    say(f"wrote {directory} ({sum(sum(each.rows.values()) for each in made):,} rows)")
    return 0


def _history(args: Namespace, chosen: str) -> int:
    if chosen != "text":
        raise PerfError(f"--all-sessions is text only, not {chosen!r}; leave --format out, or --all-sessions")
    for option, value in (("--page", args.page), ("--sample", args.sample)):
        if value is not None:
            raise PerfError(f"{option} {value}: of one session; leave it out, or --all-sessions")
    listing = Job(args.run).sessions()
    for name in installed():
        alike = [one for one in listing.sessions if one.instrument == name]
        if alike and (instrument := load(name)).offers("sessions"):
            put(text.render(instrument.sessions(replace(listing, sessions=alike))), args.output)
            return 0
    raise PerfError(
        f"--all-sessions adds up where the time of trainings went, and {str(args.run)!r} has no training;"
        " leave it out for the newest session, or give --session ID"
    )


def _judged(report: Report, chosen: str) -> int:
    if report.complaint:
        print(printable(report.complaint), file=sys.stderr)
        return EXIT_NOTHING_READ
    reading = report.reading
    if reading is None:
        return 0
    if reading.skipped and chosen == "csv":
        first = reading.first_skipped[0]
        print(
            f"{reading.path}: lines that are no records: {reading.skipped:,}; line {first.number}: "
            f"{printable(first.reason)}",
            file=sys.stderr,
        )
    if chosen == "csv":
        for remark in reading.remarks:
            say(remark)
    if not reading.skipped or sum(reading.records.values()) > 1:
        return 0
    print(
        f"{reading.path}: none of the {reading.skipped} lines after the header is a record", file=sys.stderr
    )
    return EXIT_NOTHING_READ
