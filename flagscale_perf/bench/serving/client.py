"""Imports vLLM once, starts its servers as forks of this process, and runs its own `bench serve`. This file
is run by the Python that has vLLM and imports nothing else from this package.

It answers with an empty object when it is ready, and then each line of JSON on stdin with one:

    {"bench": [options of `vllm bench serve`]}: an empty object when the result is in its file, else `error`
    {"serve": [options of the server], "environment": {}, "log": PATH}: `pid`

A server's own processes start as vLLM starts them: a rank is bound to its cores when its process begins.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from typing import Any, TextIO

SERVER = "vllm.entrypoints.openai.api_server"


def main() -> None:
    """Runs until the input ends; servers that are left end with it."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # keeps vLLM's own prints out of the answers
    serve = importlib.import_module("vllm.benchmarks.serve")
    parser = importlib.import_module("vllm.utils.argparse_utils").FlexibleArgumentParser()
    importlib.import_module(SERVER)
    serve.add_cli_args(parser)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the servers
    _answer(answers, {})
    pids: list[int] = []
    for line in sys.stdin:
        wanted = json.loads(line)
        if "serve" in wanted:
            pids.append(_fork(wanted, answers))
            _answer(answers, {"pid": pids[-1]})
        else:
            _answer(answers, _run(serve, parser, wanted["bench"]))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGTERM)


def _run(serve: Any, parser: Any, options: list[str]) -> dict[str, Any]:
    try:
        serve.main(parser.parse_args(options))
    except (Exception, SystemExit) as error:  # the caller explains it to the user
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def _fork(wanted: dict[str, Any], answers: TextIO) -> int:
    """Returns the server's process id, which is that of its session, too."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setsid()
        answers.close()
        _become(wanted)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _become(wanted: dict[str, Any]) -> None:
    """Runs the server in this process as `python -m` would."""
    log = os.open(wanted["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for fd, of in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(fd, of)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    sys.path[:0] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [SERVER, *wanted["serve"]]
    runpy.run_module(SERVER, run_name="__main__")


def _answer(answers: TextIO, content: dict[str, Any]) -> None:
    answers.write(json.dumps(content) + "\n")
    answers.flush()


if __name__ == "__main__":
    main()
