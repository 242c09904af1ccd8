"""`flagscale-perf serve` as a browser, a tunnel and an attacker meet it."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from flagscale_perf.report.server import HEADERS
from tests.browser import BROWSERS, browser, find_browser
from tests.captured_runs import evenly, make_late, write_run
from tests.processes.trainer import trainer, wait_for
from tests.synthetic import TROUBLED, write

OWN = "127.0.0.1"
DEADLINE_S = 600  # only what hangs takes so long


@dataclass(frozen=True)
class Answer:
    """What came back for one request."""

    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Server:
    """A running one: its address, as for `socket.connect`, its token, and its process."""

    address: tuple[str, int]
    token: str
    process: subprocess.Popen[str]

    @property
    def host(self) -> str:
        """What a browser sends as Host."""
        return f"{OWN}:{self.address[1]}"

    def send(self, request: bytes) -> bytes:
        """What comes back until the server closes the connection."""
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(DEADLINE_S)
            connection.connect(self.address)
            connection.sendall(request)
            received = b""
            while chunk := connection.recv(1 << 16):
                received += chunk
        return received

    def ask(self, target: str = "/", method: str = "GET", body: str = "", **headers: str | None) -> Answer:
        """One request; a header whose value is None is left out."""
        shown = {"Host": self.host, "Connection": "close"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        if method == "POST":
            shown["Content-Length"] = str(len(body))
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in shown.items() if v is not None)]
        sent = "\r\n".join([*lines, "", body]).encode("latin-1")
        head, _, received = self.send(sent).partition(b"\r\n\r\n")
        first, *rest = head.decode("latin-1").split("\r\n")
        found = (line.split(": ", 1) for line in rest)
        return Answer(int(first.split()[1]), {name.lower(): value for name, value in found}, received)

    def cookie(self) -> str:
        """What the token is exchanged for."""
        return self.ask(f"/?token={self.token}").headers["set-cookie"].split(";")[0]


@contextmanager
def serving(run: Path, *options: str) -> Iterator[Server]:
    """A server of that run, ended with the block as by Ctrl-C."""
    command = [sys.executable, "-m", "flagscale_perf", "serve", str(run), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed = ""
        while "token=" not in printed:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            printed += line
        token = re.findall(r"token=(\S+)", printed)[0]
        port = re.search(rf"http://{OWN}:(\d+)/", printed)
        assert port is not None
        yield Server((OWN, int(port[1])), token, process)
    finally:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stderr) == (0, "")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("run")
    write(TROUBLED, directory)
    (directory / "secret.txt").write_text("not for you")
    with serving(directory) as one:
        yield one


def test_the_token_becomes_a_cookie_and_the_cookie_opens_the_page(server: Server) -> None:
    exchanged = server.ask(f"/?token={server.token}")
    assert (exchanged.status, exchanged.headers["location"]) == (303, "/")
    cookie = exchanged.headers["set-cookie"]
    assert re.fullmatch(r"flagscale_perf_\w{8}=[\w-]{43}; httponly; path=/; samesite=strict", cookie.lower())
    assert server.token not in cookie
    page = server.ask(Cookie=cookie.split(";")[0])
    assert page.status == 200 and b'data-updates="updates"' in page.body
    assert {name.lower(): value for name, value in HEADERS.items()}.items() <= page.headers.items()


def test_updates_are_sent_once(server: Server) -> None:
    cookie = server.cookie()
    first = server.ask("/updates", Cookie=cookie)
    assert set(json.loads(first.body)) == {"title", "menu", "content", "charts"}
    again = server.ask("/updates", Cookie=cookie, If_None_Match=first.headers["etag"])
    assert (again.status, again.body) == (304, b"")


def test_the_session_that_began_last_is_served_whatever_its_zone_called_it(tmp_path: Path) -> None:
    with trainer(tmp_path, env={"TZ": "Asia/Shanghai"}) as first:
        first.tell("put", 10)
        first.writer()
        first.end("close")
    with serving(tmp_path, "--port", "0") as one, trainer(tmp_path, env={"TZ": "UTC"}) as second:
        cookie = one.cookie()
        second.tell("put", 23)
        wait_for(
            "the session that began last", lambda: b"(1 to 23)" in one.ask("/updates", Cookie=cookie).body
        )
        earlier, later = sorted(path.name for path in tmp_path.glob("perf_records_*"))
        assert '"iteration":23' in (tmp_path / earlier).read_text() and later > earlier
        second.end("close")


HOSTILE: dict[str, tuple[str, str, dict[str, str | None], int]] = {
    # target, method, headers beside a good cookie ("COOKIE" where it is another), status
    "no cookie": ("/", "GET", {"Cookie": None}, 403),
    "another cookie": ("/", "GET", {"Cookie": "flagscale_perf_00000000=x"}, 403),
    "our cookie's name with nothing in it": ("/", "GET", {"Cookie": "NAME="}, 403),
    "a cookie of control characters": ("/", "GET", {"Cookie": 'NAME="\\001\\377"'}, 403),
    "a cookie in Latin-1": ("/", "GET", {"Cookie": "NAME=\xe9"}, 403),
    "a wrong token": ("/?token=x", "GET", {"Cookie": None}, 403),
    "an empty token": ("/?token=", "GET", {"Cookie": None}, 403),
    "a token that is no ASCII": ("/?token=%C3%A9%00", "GET", {"Cookie": None}, 403),
    "the token, and another one": ("/?token=TOKEN&token=x", "GET", {"Cookie": None}, 403),
    "the token for something else": ("/updates?token=TOKEN", "GET", {"Cookie": None}, 403),
    "a wrong token with a good cookie": ("/?token=x", "GET", {}, 403),
    "a name that was pointed at us": ("/", "GET", {"Host": "evil.example"}, 421),
    "our name as somebody's": ("/", "GET", {"Host": "127.0.0.1.evil.example"}, 421),
    "our name as a password": ("/", "GET", {"Host": "evil@127.0.0.1"}, 421),
    "an address of the network": ("/", "GET", {"Host": "0.0.0.0:80"}, 421),
    "a port that is none": ("/", "GET", {"Host": "localhost:99999"}, 421),
    "a host with a path": ("/", "GET", {"Host": "localhost/x"}, 421),
    "a page of another origin": ("/updates", "GET", {"Origin": "http://evil.example"}, 403),
    "a page without an origin": ("/updates", "GET", {"Origin": "null"}, 403),
    "our host by another scheme": ("/updates", "GET", {"Origin": "https://HOST"}, 403),
    "a picture in another page": ("/updates", "GET", {"Sec-Fetch-Site": "cross-site"}, 403),
    "another port of this machine": ("/updates", "GET", {"Sec-Fetch-Site": "same-site"}, 403),
    "a path upwards": ("/../secret.txt", "GET", {}, 404),
    "a path upwards, hidden": ("/%2e%2e%2fsecret.txt", "GET", {}, 404),
    "a file of the directory": ("/secret.txt", "GET", {}, 404),
    "a path with a NUL": ("/updates%00", "GET", {}, 404),
    "an address in the target": ("http://evil.example/", "GET", {}, 404),
    "something written": ("/", "POST", {}, 405),
    "something removed": ("/updates", "DELETE", {}, 405),
    "a method of its own": ("/", "EVIL", {}, 405),
    "a change asked for without a cookie": (
        "/what-if",
        "POST",
        {"Cookie": None, "Origin": "http://HOST"},
        403,
    ),
    "a change asked for by another page": ("/what-if", "POST", {"Origin": "http://evil.example"}, 403),
    "a change asked for by nobody's page": ("/what-if", "POST", {}, 403),
    "a change asked for by another site": (
        "/what-if",
        "POST",
        {"Origin": "http://HOST", "Sec-Fetch-Site": "cross-site"},
        403,
    ),
    "a change by its address": ("/what-if", "GET", {}, 405),
    "a preflight": ("/updates", "OPTIONS", {"Origin": "http://evil.example"}, 405),
    "a websocket": (
        "/",
        "GET",
        {"Upgrade": "websocket", "Connection": "Upgrade, close", "Cookie": None},
        403,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_requests_get_nothing(server: Server, name: str) -> None:
    target, method, headers, status = HOSTILE[name]
    cookie = server.cookie()

    def filled(text: str | None) -> str | None:
        return text and text.replace("NAME", cookie.split("=")[0]).replace("HOST", server.host)

    sent = {"Cookie": cookie} | {key: filled(value) for key, value in headers.items()}
    answer = server.ask(target.replace("TOKEN", server.token), method, **sent)
    assert answer.status == status
    assert b"not for you" not in answer.body and b"<html" not in answer.body
    assert "access-control-allow-origin" not in answer.headers and "set-cookie" not in answer.headers


def test_the_page_asks_what_a_change_would_bring(tmp_path: Path) -> None:
    run = write_run(tmp_path / "perf", make_late(evenly(), 1, 15))
    with serving(run.parent) as one:
        own = {"Cookie": one.cookie(), "Origin": f"http://{one.host}"}
        found = one.ask("/what-if", "POST", "rank=1 forward=peers", **own)
        assert (found.status, found.body.splitlines()[0]) == (200, b"rank=1 forward=peers  (class A)")
        refused = one.ask("/what-if", "POST", "forwrd=peers", **own)
        assert (refused.status, b"did you mean forward?" in refused.body) == (422, True)
        assert one.ask("/what-if", "POST", "m=16 " * 300, **own).status == 413
        assert one.ask("/what-if", "POST", "\xff", **own).status == 422
        assert b'id="what-if"' in one.ask(**own).body
    assert not (run.parent / "predictions.jsonl").exists(), "it only shows"


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (64 << 10) + b"\r\n\r\n",
        b"GET /" + b"a" * (64 << 10) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
    ids=["TLS", "two hosts", "no host", "long header", "long target", "smuggled"],
)
def test_what_is_no_request_is_refused_and_the_server_goes_on(server: Server, request_bytes: bytes) -> None:
    received = server.send(request_bytes)
    assert received == b"" or re.match(rb"HTTP/1\.1 4\d\d ", received), received[:80]
    assert server.ask(Cookie=server.cookie()).status == 200


def test_sigterm_ends_it(tmp_path: Path) -> None:
    write(TROUBLED, tmp_path)
    command = [sys.executable, "-m", "flagscale_perf", "serve", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline().startswith("serving ")
    process.terminate()
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 128 + signal.SIGTERM


def test_a_run_that_goes_away_is_said(tmp_path: Path) -> None:
    path = write(TROUBLED, tmp_path)
    with serving(tmp_path) as one:
        cookie = one.cookie()
        path.unlink()
        gone = one.ask("/updates", Cookie=cookie)
    assert (gone.status, gone.body.decode().startswith("no perf_records_*.jsonl in ")) == (503, True), (
        gone.body
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "--port 70000 is not a port; give 1 to 65535, or 0 for any free one"),
        (
            ["--port", "TAKEN"],
            "cannot listen on port TAKEN: Address already in use; --port 0 for any free one",
        ),
    ],
)
def test_a_place_that_cannot_be_listened_on(run_python, tmp_path: Path, options, message: str) -> None:
    write(TROUBLED, tmp_path)
    with socket.socket() as other:
        other.bind((OWN, 0))
        other.listen()
        taken = str(other.getsockname()[1])
        options = [option.replace("TAKEN", taken) for option in options]
        result = run_python("-m", "flagscale_perf", "serve", tmp_path, *options)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(message.replace("TAKEN", taken)), result.stderr


@pytest.mark.skipif(find_browser() is None, reason=f"none of {', '.join(BROWSERS)} is on the PATH")
def test_the_page_follows_the_run_and_a_zoom_outlives_it(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    path = write(TROUBLED, tmp_path / "whole")
    lines = path.read_bytes().splitlines(keepends=True)
    live = tmp_path / path.name
    live.write_bytes(b"".join(lines[: len(lines) // 2]))
    with serving(tmp_path) as one, browser() as tab:
        tab.show(f"http://{one.host}/?token={one.token}", 1440, "light")
        assert tab.evaluate("location.href") == f"http://{one.host}/"
        tab.wait_until(lambda: bool(tab.evaluate("document.documentElement.dataset.updated")))
        before = tab.evaluate("document.documentElement.dataset.updated")
        as_a_mouse_does = "{'xaxis.range[0]': 11, 'xaxis.range[1]': 17}"
        tab.evaluate(f"Plotly.relayout('chart-trend', {as_a_mouse_does}).then(() => 0)")
        with live.open("ab") as file:
            file.write(b"".join(lines[len(lines) // 2 :]))
        tab.wait_until(lambda: tab.evaluate("document.documentElement.dataset.updated") != before)
        status = "document.getElementById('status').textContent"
        assert tab.evaluate(status).startswith("updated ")
        for name in ("trend", "phases"):
            assert tab.evaluate(f"document.getElementById('chart-{name}').layout.xaxis.range") == [11, 17]
        points = tab.evaluate("document.getElementById('chart-trend').data[0].x.length")
        assert points == len(
            {json.loads(line)["iteration"] for line in lines if b'"kind":"interval"' in line}
        )
        assert {url.split("?")[0] for url in tab.seen.requests} <= {
            f"http://{one.host}/",
            f"http://{one.host}/updates",
        }
        assert tab.seen.complaints == []


@pytest.mark.skipif(find_browser() is None, reason=f"none of {', '.join(BROWSERS)} is on the PATH")
def test_the_form_of_the_page_shows_the_answer(tmp_path: Path) -> None:
    run = write_run(tmp_path / "perf", make_late(evenly(), 1, 15))
    with serving(run.parent) as one, browser() as tab:
        tab.show(f"http://{one.host}/?token={one.token}", 1440, "light")
        form = "document.querySelector('#what-if form')"
        tab.wait_until(lambda: bool(tab.evaluate(f"!!{form}")))
        tab.evaluate(
            f"{form}.querySelector('input').value = 'rank=1 forward=peers'; {form}.requestSubmit(); 0"
        )
        said = f"{form}.querySelector('pre').textContent"
        tab.wait_until(lambda: bool(tab.evaluate(said)))
        assert tab.evaluate(said).startswith("rank=1 forward=peers  (class A)\nmeasured ")
        assert tab.seen.complaints == []


def test_idle_connections_of_anybody_lock_nobody_out(tmp_path: Path) -> None:
    write(TROUBLED, tmp_path)
    with serving(tmp_path) as server, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(server.address)) for _ in range(100)]
        for one in idle[90:]:
            one.sendall(b"GET / HTTP/1.1\r\nHost: ")  # and never the rest
        cookie = server.cookie()
        assert server.ask(Cookie=cookie).status == 200
        for one in (idle[0], idle[-1]):  # one too many, and one whose time is over
            one.settimeout(DEADLINE_S)
            with contextlib.suppress(ConnectionResetError):
                assert one.recv(1) == b""
        assert server.ask(Cookie=cookie).status == 200


def test_a_run_that_has_not_begun_is_waited_for(tmp_path: Path) -> None:
    directory = tmp_path / "runs"
    directory.mkdir()
    with serving(directory) as server:
        cookie = server.cookie()
        waiting = server.ask(Cookie=cookie)
        assert (waiting.status, waiting.headers["refresh"]) == (503, "2")
        assert b"it is shown when its training begins" in waiting.body
        write(TROUBLED, directory)
        assert wait_for("the page", lambda: (page := server.ask(Cookie=cookie)).status == 200 and page)
