"""Steps of a vLLM that serves, profiled when somebody asks: by `flagscale-perf profile now DIR --seconds 5`.

A worker started with FLAGSCALE_PERF_PROFILE_DIR and no steps looks for a request in that directory, on a
thread of its own, which also makes the profiler ready and ends it. The engine's thread takes a lock that
nobody holds for longer than a moment.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flagscale_perf.hosts.profiling.vllm import Steps, Work
from flagscale_perf.profile.asked import Request, look_into, request_in
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.profile.options import Steps as Numbers
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns

if TYPE_CHECKING:
    from flagscale_perf.profile.profiler import Profiler

LOOK_S = 0.5
_AT_ONCE = 10  # profiled steps of a window: what a killed server loses, and what is made of events at its end


class StepsOnRequest(Steps):
    """The steps of one worker, of which some are profiled when a request comes."""

    def __init__(self, options: ProfileOptions, wrapper: Any) -> None:
        super().__init__(options, wrapper)
        self._lock = threading.Lock()
        self._request: Request | None = None  # that is obeyed
        self._seen = ""  # name of the last one
        self._begun_ns: int | None = None  # when its first step began
        self._answered, self._profiled, self._is_full = 0, 0, False
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="flagscale_perf profile now", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the worker's profile."""
        self._is_closed.set()
        self._thread.join()  # it may be writing one
        super().close()

    def _end_profiler(self, profiler: Profiler) -> None:
        profiler.finish()

    def _watch(self) -> None:
        try:
            fd = look_into(self._options.directory)
        except OSError as error:  # a directory that takes no files: vLLM goes on serving
            self._fail(error)
            return
        try:
            while not self._is_closed.wait(LOOK_S) and self._is_on:
                self._look(request_in(self._options.directory))
        except Exception as error:  # another version's model, for example: vLLM goes on serving
            self._fail(error)
        finally:
            os.close(fd)

    def _look(self, found: Request | None) -> None:
        if self._request is None:
            if found is not None and found.name != self._seen:
                self._obey(found)
            return
        with self._lock:
            is_withdrawn = found is None or found.name != self._request.name
            is_due = self._work is None and (is_withdrawn or self._is_over(self._request))
            profiler = self._profiler if is_due else None
            if is_due:
                self._request = self._profiler = None
        if profiler is not None:
            profiler.finish()

    def _obey(self, request: Request) -> None:
        self._seen = request.name
        numbers = Numbers(1, _AT_ONCE, _AT_ONCE * (1 + self._options.clean))
        self._make(replace(self._options, steps=numbers, shapes=False, memory=False))
        with self._lock:
            self._counts.clear()
            self._begun_ns, self._answered, self._profiled, self._is_full = None, 0, 0, False
            self._request = request

    def _begin(self, scheduled: Any) -> None:
        with self._lock:
            self._begin_step(scheduled)

    def _begin_step(self, scheduled: Any) -> None:
        self._work = None
        work, request = Work.of(scheduled), self._request
        if request is None or self._profiler is None or self._is_over(request):
            return
        if self._begun_ns is not None:
            self._answered += len(getattr(scheduled, "finished_req_ids", ()))
        elif work is None or time.time() < request.begin_unix_s:
            return
        else:
            self._begun_ns = monotonic_ns()
        is_profiled = work is not None and self._counts[work.phase] % (1 + self._options.clean) == 0
        is_answered = request.requests is not None and self._answered >= request.requests
        self._is_full = is_answered or (is_profiled and self._profiled == request.steps)
        if work is None or self._is_full:
            return
        self._profiled += is_profiled
        self._counts[work.phase] += 1
        self._work = work
        self._profiler.begin_step(self._counts[work.phase], work.phase)

    def end(self) -> None:
        """The step is over."""
        with self._lock:
            super().end()

    def _is_over(self, request: Request) -> bool:
        if self._begun_ns is None:
            return False
        return self._is_full or monotonic_ns() - self._begun_ns >= request.seconds * NS_PER_S
