"""A page in headless Chromium, driven over a pipe by the DevTools protocol: nothing but the browser has to be
installed.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_DEADLINE_S = 60
_START = (
    "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); "
    "os.execv(sys.argv[3], sys.argv[3:])"
)
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--hide-scrollbars",
    "--force-device-scale-factor=1",
    "--remote-debugging-pipe",
)


def find_browser() -> str | None:
    """The program; None where there is none."""
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@dataclass
class Seen:
    """What a page did.

    Attributes:
        requests: addresses that it asked for, its own among them.
        complaints: errors of scripts and lines of the console, breaches of its policy among them.
    """

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


class Browser:
    """One tab. `call` is a method of the protocol; what the page did meanwhile is in `seen`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from, self._read = to_browser, from_browser, b""
        self._number, self._session, self._context = 0, "", ""
        self.open_tab()

    def open_tab(self) -> None:
        """Another tab instead, as a browser that was just started would have it."""
        before, self._session = self._context, ""
        self._context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=self._context)
        if before:
            self.call("Target.disposeBrowserContext", browserContextId=before)
        attached = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        self.seen = Seen()
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """The result. Raises RuntimeError with what the browser says is wrong."""
        self._number += 1
        session = {"sessionId": self._session} if self._session else {}
        _write(
            self._to,
            json.dumps({"id": self._number, "method": method, "params": params} | session).encode() + b"\0",
        )
        while True:
            message = self._next()
            if message.get("id") == self._number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])
            self._note(message)

    def evaluate(self, expression: str) -> Any:
        """Its value in the page, a promise's when it is kept. Raises RuntimeError for one that throws."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def show(self, page: Path | str, width: int, theme: str) -> None:
        """Loads a file or an address and waits until its charts are drawn or it complains. Raises
        TimeoutError where neither happens.
        """
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self.call("Page.navigate", url=page.resolve().as_uri() if isinstance(page, Path) else page)
        self.wait_until(
            lambda: (
                bool(self.seen.complaints)
                or self.evaluate("document.documentElement?.dataset.drawn === 'true'")
            )
        )

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Until it holds; what the page did meanwhile is heard. Raises TimeoutError where it never does."""
        end = time.monotonic() + _DEADLINE_S
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"it never held; the page says {self.seen.complaints}")
            time.sleep(0.05)
            self.evaluate("0")

    def picture(self, at: str = "html", height: int | None = None) -> bytes:
        """PNG of the page from that element (a CSS selector) on, to the end or so high."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        top = self.evaluate(f"document.querySelector({at!r}).getBoundingClientRect().top + scrollY")
        clip = {
            "x": 0,
            "y": top,
            "width": size["width"],
            "height": height or size["height"] - top,
            "scale": 1,
        }
        shot = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)
        return base64.b64decode(shot["data"])

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            if not select.select([self._from], [], [], _DEADLINE_S)[0]:
                raise TimeoutError("the browser does not answer")
            chunk = os.read(self._from, 1 << 20)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self._read += chunk
        line, self._read = self._read.split(b"\0", 1)
        return dict(json.loads(line))

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Network.requestWillBeSent" if not params["request"]["url"].startswith(
                ("data:", "blob:")
            ):  # pictures in the page
                self.seen.requests.append(params["request"]["url"])
            case "Runtime.exceptionThrown":
                self.seen.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.seen.complaints.append(json.dumps(params["args"]))
            case "Log.entryAdded":
                self.seen.complaints.append(params["entry"]["text"])


def _pipe() -> list[int]:
    """Both ends, neither of them file 3 or 4."""
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high


def _write(file: int, message: bytes) -> None:
    while message:
        message = message[os.write(file, message) :]


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser that ends with the block. It finds its ends of the two pipes as files 3 and 4, as the
    protocol has it.
    """
    program = find_browser()
    if program is None:
        raise FileNotFoundError(f"none of {BROWSERS} is on the PATH")
    (theirs_in, ours_out), (ours_in, theirs_out) = _pipe(), _pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        start = [
            sys.executable,
            "-c",
            _START,
            str(theirs_in),
            str(theirs_out),
            program,
            *_FLAGS,
            f"--user-data-dir={profile}",
        ]
        process = subprocess.Popen(
            start,
            pass_fds=(theirs_in, theirs_out),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield (one := Browser(ours_out, ours_in))
            one.call("Browser.close")
        finally:
            os.close(ours_out)
            os.close(ours_in)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
