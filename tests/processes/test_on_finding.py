"""A command that is told of findings: by the scripts of examples/on_finding, and what a bad one costs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import psutil

from flagscale_perf.spine.records import EventRecord
from tests.processes.trainer import REPO, Trainer, records_in, steps_in, text_of, trainer, wait_for

SCRIPTS = REPO / "examples" / "on_finding"


def become_slower(training: Trainer) -> None:
    """A finding that begins; `text_of` has it as soon as the writer has seen it."""
    training.tell("put", 100, 100)
    training.tell("put", 100, 120)
    wait_for("its beginning", lambda: "slowdown" in text_of(training.directory, "findings.jsonl"))


def slowdowns(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A busy machine may be short of CPU besides."""
    return [each for each in lines if each["finding"] == "slowdown"]


def stub(directory: Path, name: str) -> dict[str, str]:
    """A program of this name that keeps its arguments and what it is given; the variables to find it by."""
    path = directory / "bin" / name
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\necho "$@" > {directory}/words\ncat > {directory}/given\n')
    path.chmod(0o755)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"}


@contextmanager
def webhook() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its address, and what was posted there."""
    posted: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", posted
        server.shutdown()
        thread.join()


def test_a_webhook_is_posted_the_beginning_and_the_end(tmp_path: Path) -> None:
    with webhook() as (address, posted):
        command = f"{SCRIPTS / 'webhook.sh'} {address}"
        with trainer(tmp_path, perf_log_interval=4, perf_on_finding=command) as training:
            become_slower(training)
            wait_for("the first", lambda: slowdowns(posted))
            training.tell("put", 100, 100)
            wait_for("the second", lambda: slowdowns(posted)[1:])
            training.end("return")
    assert [each["state"] for each in slowdowns(posted)] == ["begins", "ends"]
    lines = [json.loads(line) for line in text_of(tmp_path, "findings.jsonl").splitlines()]
    more = {"host": os.uname().nodename, "directory": str(tmp_path), "not_told": 0}
    assert posted == [line | more for line in lines]
    assert not [
        each for each in records_in(tmp_path) if isinstance(each, EventRecord) and each.name == "failure"
    ]


def test_a_mail_is_sent_to_whom_it_is_for(tmp_path: Path) -> None:
    command = f"{SCRIPTS / 'mail.sh'} me@example.org"
    with trainer(
        tmp_path / "perf", perf_log_interval=4, perf_on_finding=command, env=stub(tmp_path, "sendmail")
    ) as training:
        become_slower(training)
        given = wait_for("the mail", lambda: text_of(tmp_path, "given"))
        training.end("return")
    head, _, body = given.partition("\n\n")
    assert head == "To: me@example.org\nSubject: training: a finding"
    assert json.loads(body)["text"].startswith("a step takes 20 % longer")


def test_no_line_of_a_mail_is_longer_than_mail_allows(tmp_path: Path) -> None:
    line = json.dumps({"text": "rank 1 in forward; " * 200}) + "\n"
    env = os.environ | stub(tmp_path, "sendmail")
    subprocess.run([SCRIPTS / "mail.sh", "me@example.org"], input=line, text=True, env=env, check=True)
    _, _, body = text_of(tmp_path, "given").partition("\n\n")
    assert max(map(len, body.splitlines())) <= 998
    assert body.replace("\n", "") == line.rstrip()


def test_slurm_is_asked_to_start_a_job_again_that_was_killed(tmp_path: Path) -> None:
    env = stub(tmp_path, "scontrol")
    command = str(SCRIPTS / "requeue.sh")
    with trainer(tmp_path / "perf", perf_log_interval=4, perf_on_finding=command, env=env) as training:
        become_slower(training)
        training.kill(signal.SIGKILL)
        assert wait_for("the request", lambda: text_of(tmp_path, "words")) == "requeue 4711\n"
    told = [json.loads(line) for line in text_of(tmp_path / "perf", "findings.jsonl").splitlines()]
    assert [(each["finding"], each["state"]) for each in (told[0], told[-1])] == [
        ("slowdown", "begins"),
        ("lost_rank", "begins"),
    ]
    assert told[-1]["pid"] == training.process.pid


def test_a_full_disk_is_told_though_no_file_can_say_so(tmp_path: Path) -> None:
    given = tmp_path / "given"
    command = f"sh -c 'cat >> {given}'"
    blocked = tmp_path / "file"
    blocked.write_text("no directory")
    with trainer(blocked / "perf", perf_on_finding=command) as training:
        told = json.loads(wait_for("the finding", lambda: given.exists() and given.read_text()))
        training.end("return")
    assert (told["finding"], told["state"], told["error"]) == ("disk", "begins", "Not a directory")
    assert told["session_id"] is None


def test_a_command_that_hangs_holds_up_neither_records_nor_the_end(tmp_path: Path) -> None:
    command = f"sh -c 'echo $$ > {tmp_path}/pid; sleep 1000'"
    with trainer(tmp_path, perf_log_interval=4, perf_on_finding=command) as training:
        become_slower(training)
        pid = int(wait_for("the command", lambda: text_of(tmp_path, "pid").strip()))
        training.tell("put", 50, 100)
        wait_for("what comes meanwhile", lambda: len(steps_in(tmp_path)) == 250)
        code, said, errors = training.end("return")
        assert code == 0 and "perf_summary_" in said and "flagscale_perf" not in errors
    leader = psutil.Process(pid)  # the limit holds without its writer
    limiter = leader.parent()
    assert limiter is not None and limiter.cmdline()[2].endswith("limited.py") and "60" in limiter.cmdline()
    for process in (limiter, *leader.children(), leader):
        process.kill()


def test_a_command_that_fails_is_an_event(tmp_path: Path) -> None:
    command = "sh -c 'echo the channel is gone >&2; exit 7'"
    with trainer(tmp_path, perf_log_interval=4, perf_on_finding=command) as training:
        become_slower(training)
        text = "--perf-on-finding sh: ended with code 7: the channel is gone"
        wait_for("the event", lambda: text in text_of(tmp_path, "perf_records_*.jsonl"))
        _, _, errors = training.end("return")
    assert f"flagscale_perf: {text}" in errors
    failures = [
        each for each in records_in(tmp_path) if isinstance(each, EventRecord) and each.name == "failure"
    ]
    assert {each.text for each in failures} == {text}
