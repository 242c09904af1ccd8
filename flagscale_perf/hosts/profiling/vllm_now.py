"""Steps of a vLLM that serves, profiled when somebody asks: by `flagscale-perf profile now DIR --seconds 5`.

A worker started with FLAGSCALE_PERF_PROFILE_DIR and no steps looks for a request in that directory, on a
thread of its own. The engine's thread takes a lock that nobody holds for longer than a moment; what is made
of the events, and the end of a window, is another thread's work.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from flagscale_perf.hosts.profiling.vllm import Steps, Work
from flagscale_perf.profile.options import MOST_SECONDS, NOW_FILE, ProfileOptions
from flagscale_perf.profile.options import Steps as Numbers
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.files import open_regular

LOOK_S = 0.5
FORGOTTEN_S = 120.0
_MOST_STEPS = 1_000_000
_MAX_BYTES = 1024


class Request(NamedTuple):
    """What is asked for.

    Attributes:
        name: of the request, no other has it.
        begin_unix_s: from then on, so that all workers begin with the same step or the next one.
        seconds: at most, from the first step on.
        requests: after so many have been answered; None: after the seconds.
    """

    name: str
    begin_unix_s: float
    seconds: float
    requests: int | None


def request_in(directory: Path) -> Request | None:
    """The request that lies there; None where there is none, or one that was left behind."""
    try:
        with open(open_regular(str(directory / NOW_FILE), os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
            content = json.loads(file.read(_MAX_BYTES))
        requests = None if content["requests"] is None else int(content["requests"])
        seconds = min(float(content["seconds"]), MOST_SECONDS)
        made = Request(str(content["name"]), float(content["begin_unix_s"]), seconds, requests)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return made if time.time() - made.begin_unix_s < FORGOTTEN_S else None


class StepsOnRequest(Steps):
    """The steps of one worker, of which some are profiled when a request comes."""

    def __init__(self, options: ProfileOptions, wrapper: Any) -> None:
        super().__init__(options, wrapper)
        self._lock = threading.Lock()
        self._seen = ""  # name of the last request
        self._request: Request | None = None
        self._begun_ns, self._answered = 0, 0
        self._is_closed = threading.Event()
        threading.Thread(target=self._watch, name="flagscale_perf profile now", daemon=True).start()

    def close(self) -> None:
        """Ends the worker's profile."""
        self._is_closed.set()
        super().close()

    def _watch(self) -> None:
        while not self._is_closed.wait(LOOK_S):
            found = request_in(self._options.directory)
            with self._lock:
                if found is not None and found.name != self._seen and self._profiler is None:
                    self._seen, self._request = found.name, found
                is_due = self._work is None and self._is_over()
                profiler = self._take() if is_due else None
            if profiler is not None:
                with contextlib.suppress(Exception):  # it has said so itself
                    profiler.finish()

    def _begin(self, scheduled: Any) -> None:
        with self._lock:
            self._begin_step(scheduled)

    def _begin_step(self, scheduled: Any) -> None:
        self._work = None
        work, request = Work.of(scheduled), self._request
        if request is None or self._is_over():
            return
        if self._profiler is None:
            if work is None or time.time() < request.begin_unix_s:
                return
            self._counts.clear()
            self._begun_ns, self._answered = monotonic_ns(), 0
            numbers = Numbers(1, _MOST_STEPS)
            self._make(replace(self._options, steps=numbers, shapes=False, memory=False))
        else:
            self._answered += len(getattr(scheduled, "finished_req_ids", ()))
        if work is not None and self._profiler is not None:
            self._counts[work.phase] += 1
            self._work = work
            self._profiler.begin_step(self._counts[work.phase], work.phase)

    def end(self) -> None:
        """The step is over."""
        with self._lock:
            super().end()

    def _is_over(self) -> bool:
        request = self._request
        if request is None or self._profiler is None:
            return False
        has_time = monotonic_ns() - self._begun_ns < request.seconds * NS_PER_S
        return not has_time or (request.requests is not None and self._answered >= request.requests)

    def _take(self) -> Any:
        profiler, self._profiler, self._request = self._profiler, None, None
        return profiler
