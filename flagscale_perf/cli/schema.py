"""`flagscale-perf schema`: every key of records and of JSON, with its unit and what it means."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import chain
from typing import Any

from flagscale_perf.analysis.described import Key, keys
from flagscale_perf.analysis.instrument import installed
from flagscale_perf.cli.base import Command
from flagscale_perf.spine.figures import Table


class SchemaCommand(Command):
    """Prints a line a key, or JSON."""

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Arguments: which keys, and the form."""
        about = "only keys of this kind of record or part of a report, such as step, finding or report"
        parser.add_argument("of", nargs="?", metavar="KIND", help=about)
        parser.add_argument("--json", action="store_true", help="as a JSON list, an object a key")

    def run(self, args: Namespace) -> int:
        """1 where there is no such kind."""
        chosen = [key for key in every_key() if args.of in (None, key.of)]
        if args.json:
            print(json.dumps([key._asdict() for key in chosen], indent=1))
        else:
            for key in chosen:
                unit = f" [{key.unit}]" if key.unit else ""
                print(f"{key.of}.{key.name} ({key.type}){unit}: {key.meaning}")
        return 0 if chosen else 1


def every_key() -> Iterator[Key]:
    """Those of the instruments that are installed."""
    figures: dict[str, Table[Any, Any]] = {}
    contents: dict[str, type] = {}
    if "training" in installed():
        from flagscale_perf.training import figures as of_training
        from flagscale_perf.training.analysis.report import TrainingReport

        figures["interval"], contents["report"] = of_training.TABLE, TrainingReport
    if "rpc" in installed():
        from flagscale_perf.rpc import figures as of_calls

        figures["call figure"] = of_calls.TABLE
    version = "of this form; it changes where a key goes or means something else"
    return chain([Key("report", "report_version", "integer", "", version)], keys(figures, contents))
