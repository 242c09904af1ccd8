"""Runs vLLM's own `bench serve` for each request on stdin.

It reads a line of JSON for each run: the options of `vllm bench serve` as a list. It answers with a line of
JSON: an empty object for one whose result is in its file, else an object with `error`.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any, TextIO


def main() -> None:
    """Runs until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keeps vLLM's own prints out of the answers
    serve = importlib.import_module("vllm.benchmarks.serve")
    parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    serve.add_cli_args(parser)
    _answer(answers, {})
    for line in sys.stdin:
        _answer(answers, _run(serve, parser, json.loads(line)))


def _run(serve: Any, parser: Any, options: list[str]) -> dict[str, str]:
    try:
        serve.main(parser.parse_args(options))
    except (Exception, SystemExit) as error:  # the caller explains it to the user
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def _answer(answers: TextIO, content: dict[str, str]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
