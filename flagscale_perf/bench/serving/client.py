"""Imports vLLM once and runs its own `bench serve` as often as it is asked to. This file is run by the Python
that has vLLM and imports nothing else from this package; its argument is the process id of a server.

It answers with an empty object when it is ready, and then each line of JSON on stdin, the options of `vllm
bench serve`, with one: empty when the result is in its file, else with `error`. The server ends with the
input: so none is left, however the experiment ends.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
from typing import Any


def main() -> None:
    """Runs until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # keeps vLLM's own prints out of the answers
    try:
        serve = importlib.import_module("vllm.benchmarks.serve")
        parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
        serve.add_cli_args(parser)
        print("{}", file=answers)
        for line in sys.stdin:
            print(json.dumps(_run(serve, parser, json.loads(line))), file=answers)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(int(sys.argv[1]), signal.SIGTERM)


def _run(serve: Any, parser: Any, options: list[str]) -> dict[str, str]:
    try:
        serve.main(parser.parse_args(options))
    except (Exception, SystemExit) as error:  # the caller explains it to the user
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


if __name__ == "__main__":
    main()
