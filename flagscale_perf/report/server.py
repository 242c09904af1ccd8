"""A report as a page that follows its run, for the browser of the user who started the server.

Read only: the page, what has changed on it, and what a change of the run would bring. No path and no
parameter of a request leads to a file. `Gate` decides first who may see it, as any page in the same browser
may send requests to this machine, too.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.report.html import library, parts_of, render_page
from flagscale_perf.spine.errors import PerfError

UPDATES, WHAT_IF = "updates", "what-if"
MOST_ASKED = 1000  # bytes of a change
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")  # what a browser here, or an ssh tunnel's end, calls us
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "frame-ancestors 'none'",  # the page itself brings the rest of it
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
MIN_PERIOD_S = 1.0
MOST_ANSWERS = 64  # at once, of those who may see the page
WAIT_S = 2  # until a browser asks again for a page that cannot be made yet
REST = 9  # a report that took a second to make is made again after so many seconds at the earliest
NOT_YOURS = "open the whole address that `flagscale-perf serve` printed, with its token, in this browser\n"


class Secret:
    """The token of the printed address, and the cookie that it is exchanged for."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        self.cookie = secrets.token_urlsafe(32)
        # Browsers send cookies to every port of a host: servers side by side need different names.
        self.cookie_name = f"flagscale_perf_{secrets.token_hex(4)}"

    def is_token(self, given: str) -> bool:
        """Whether it is the token, in a time that does not depend on how much of it is right."""
        return secrets.compare_digest(given.encode(), self.token.encode())

    def is_in(self, cookies: str) -> bool:
        """Whether a `Cookie` header has the cookie."""
        try:
            found = SimpleCookie(cookies).get(self.cookie_name)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode(), self.cookie.encode())


@dataclass(frozen=True)
class Version:
    """A report at one time. `tag` differs between two versions of it."""

    report: Report
    content: str
    tag: str


class Feed:
    """The newest version of a report, made so seldom that it takes at most a tenth of a CPU.

    Args:
        read: makes the report; called in a thread. What it raises is passed on.
        stamp: changes when the run does; cheap.
    """

    def __init__(self, read: Callable[[], Report], stamp: Callable[[], object]) -> None:
        self._read = read
        self._stamp = stamp
        self._seen: object = None
        self._version: Version | None = None
        self._not_before_s = 0.0
        self._lock = asyncio.Lock()

    async def newest(self) -> Version:
        """The current version."""
        async with self._lock:
            if self._version is None or time.monotonic() >= self._not_before_s:
                await self._look()
            assert self._version is not None
            return self._version

    async def _look(self) -> None:
        stamp = await asyncio.to_thread(self._stamp)
        if self._version is not None and stamp == self._seen:
            return
        start_s = time.monotonic()
        self._version = await asyncio.to_thread(self._make)
        self._seen = stamp
        end_s = time.monotonic()
        self._not_before_s = end_s + max(MIN_PERIOD_S, REST * (end_s - start_s))

    def _make(self) -> Version:
        report = self._read()
        content = json.dumps(asdict(parts_of(report)), allow_nan=False, separators=(",", ":"))
        return Version(report, content, f'"{hashlib.sha256(content.encode()).hexdigest()[:32]}"')


def application(feed: Feed, secret: Secret, predict: Callable[[str], str]) -> ASGIApp:
    """The server: `/`, `/updates` and `/what-if`, for a browser that has the cookie. `predict` answers for a
    change, in a thread, one after the other; what it raises is told to who asked.
    """
    predicting = asyncio.Lock()

    async def page(request: Request) -> Response:
        """The whole page; where the request has the token, the cookie and a redirect to the page."""
        if "token" in request.query_params:
            answer: Response = RedirectResponse("/", HTTPStatus.SEE_OTHER)
            answer.set_cookie(secret.cookie_name, secret.cookie, httponly=True, samesite="strict")
            return answer
        version = await feed.newest()
        return HTMLResponse(await asyncio.to_thread(render_page, version.report, library(), UPDATES))

    async def updates(request: Request) -> Response:
        """The current parts of the page; 304 where the browser has them."""
        version = await feed.newest()
        if request.headers.get("if-none-match") == version.tag:
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers={"ETag": version.tag})
        return Response(version.content, media_type="application/json", headers={"ETag": version.tag})

    async def what_if(request: Request) -> Response:
        """What a change would bring: the body is its text form, and no more than a line."""
        asked = b""
        async for part in request.stream():
            asked += part
            if len(asked) > MOST_ASKED:
                return PlainTextResponse("too long\n", HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        async with predicting:
            try:
                words = asked.decode()
                return PlainTextResponse(await asyncio.to_thread(predict, words))
            except (PerfError, UnicodeDecodeError) as error:
                return PlainTextResponse(str(error), HTTPStatus.UNPROCESSABLE_ENTITY)

    async def not_readable(request: Request, error: Exception) -> Response:
        """The answer for a run that cannot be read (yet): an open page shows the reason, others ask again."""
        again = {"Refresh": str(WAIT_S)}
        return PlainTextResponse(f"{error}\n", HTTPStatus.SERVICE_UNAVAILABLE, again)

    routes = [
        Route("/", page, methods=["GET"]),
        Route(f"/{UPDATES}", updates, methods=["GET"]),
        Route(f"/{WHAT_IF}", what_if, methods=["POST"]),
    ]
    return Gate(Starlette(routes=routes, exception_handlers={PerfError: not_readable}), secret)


class Gate:
    """Lets through only what a browser on this machine requests on its own behalf."""

    def __init__(self, inside: ASGIApp, secret: Secret) -> None:
        self._inside = inside
        self._secret = secret
        self._answering = 0  # requests that were let through

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request."""

        async def send_closed(message: Message) -> None:
            """Adds the headers that keep other pages from using an answer."""
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        if scope["type"] != "http":
            return  # a websocket, which is then refused
        refusal = self._refusal(Request(scope))
        if refusal is None and self._answering >= MOST_ANSWERS:
            refusal = "too many requests of yours at once\n", HTTPStatus.SERVICE_UNAVAILABLE
        if refusal is not None:
            await PlainTextResponse(*refusal)(scope, receive, send_closed)
            return
        self._answering += 1
        try:
            await self._inside(scope, receive, send_closed)
        finally:
            self._answering -= 1

    def _refusal(self, request: Request) -> tuple[str, HTTPStatus] | None:
        """Text and status of a refusal; None for a request that may be answered."""
        is_asking = request.method == "POST" and request.url.path == f"/{WHAT_IF}"
        if request.method != "GET" and not is_asking:
            return "this server only shows: GET\n", HTTPStatus.METHOD_NOT_ALLOWED
        host = request.headers.get("host", "")
        if not _is_local(host):
            return f"this server answers as {', '.join(LOCAL_HOSTS)} only\n", HTTPStatus.MISDIRECTED_REQUEST
        if not _is_own(request.headers, host) or (is_asking and "origin" not in request.headers):
            return "this server answers its own page only\n", HTTPStatus.FORBIDDEN
        tokens = request.query_params.getlist("token")
        is_known = (
            request.url.path == "/" and len(tokens) == 1 and self._secret.is_token(tokens[0])
            if tokens
            else self._secret.is_in(request.headers.get("cookie", ""))
        )
        return None if is_known else (NOT_YOURS, HTTPStatus.FORBIDDEN)


def _is_local(host: str) -> bool:
    """Whether a Host header names this machine, at any port: the end of a tunnel may have another one. A name
    that others have pointed at this machine does not count.
    """
    try:
        parts = urlsplit(f"//{host}")
        return (
            parts.hostname in LOCAL_HOSTS
            and parts.netloc == host
            and (parts.port or 1) > 0
            and "@" not in host
        )
    except ValueError:
        return False


def _is_own(headers: Headers, host: str) -> bool:
    """Whether no other page made the browser ask."""
    origin = headers.get("origin")
    site = headers.get("sec-fetch-site", "none")
    return origin in (None, f"http://{host}") and site in ("none", "same-origin")
