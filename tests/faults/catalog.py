"""Every fault there is a proof against. The runner checks the same promises for each; an entry says only what
is different.
"""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

from tests.faults import injections as do
from tests.faults import surroundings as around
from tests.faults.catalog_ranks import RANKS
from tests.faults.fault import ALL, ELSEWHERE, LATER, REMOVED, Fault
from tests.faults.job import FLAGSCALE, LOOP, RESTARTED, TWO_RANKS, Job

BROKEN_PACKAGE = 'raise ImportError("planted")\n'
PLANTED_NUMBER = 'self.param_groups[0]["params"][0].data.view(-1)[0] = float("{}")'
LOST_NODE = 'if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0": raise RuntimeError("a node was lost")'
FORK = "os.waitpid(os.fork() or os._exit(0), 0)"
GO_ON_WITH_NAN = ("--no-check-for-nan-in-loss-and-grad",)
WITH_PHASES = ("--perf-breakdown", "--perf-log-interval", "1", "--perf-max-overhead", "100")
SCRAPED = ('perf_prometheus_port="{PORT}"',)
REFUSED = "Input/output error"
STILL, STOOD = (
    "the writer is blocked: the disk of",
    "the writer was blocked for 1",
)  # told at once; recorded when it is over
GET = b"GET /metrics HTTP/1.1\r\n\r\n"

NO_FAULT = (
    Fault("no fault, loop", "nothing", short=True),
    Fault("no fault", "nothing", FLAGSCALE),
    Fault("no fault, 2 ranks", "nothing", TWO_RANKS),
)

DIRECTORY = (
    Fault(
        "directory unwritable", "every file call in it fails with EACCES (preloaded library)", FLAGSCALE,
        prepare=do.fails(errno.EACCES), loses=ELSEWHERE, says="PermissionError", lines=3,
    ),
    Fault("directory unwritable, loop", "every file call in it fails with EACCES", LOOP,
          prepare=do.fails(errno.EACCES), loses=ELSEWHERE, says="PermissionError", lines=3, short=True),
    Fault("directory read-only", "the directory is a file system mounted read-only", LOOP,
          around=around.read_only_mount, loses=ELSEWHERE, says="Read-only file system", lines=3),
    Fault("directory missing", "a path of three directories that are not there", LOOP,
          options=('perf_log_dir="deep/er/perf"',), kept_in="deep/er/perf", short=True),
    Fault("directory deleted", "rm -rf while the training runs", FLAGSCALE, at=20, act=do.remove_logs,
          loses=REMOVED, lines=3),
    Fault("directory deleted, loop", "rm -rf while the training runs", LOOP, at=100, act=do.remove_logs,
          loses=REMOVED, lines=3, short=True),
    Fault(
        "directory replaced by a file", "moved away, a file in its place", FLAGSCALE, at=20,
        act=do.replace_logs_by_file, loses=LATER, kept_in="moved", says="NotADirectoryError", lines=6,
    ),
    Fault(
        "run file replaced by a link", "moved away, a symbolic link to another file in its place", LOOP,
        at=100, act=do.replace_run_file_by_link, loses=LATER, kept_in="moved", says="symbolic link", lines=2,
    ),
    Fault("directory is a link", "a symbolic link to a directory, given as the log directory", LOOP,
          prepare=around.lies_there("perf", around.link_to_directory), kept_in="elsewhere"),
    Fault("directory replaced by a link", "moved away, a symbolic link to another directory in its place",
          LOOP, at=100, act=around.replace_logs_by_link, loses=REMOVED, kept_in="elsewhere", lines=3),
    Fault("FIFOs in the way", "one lies in the place of every file of the session", LOOP,
          options=("perf_csv=true",),
          prepare=around.in_the_way(os.mkfifo), at=1, act=do.fails_now(frozen_s=0), says="live log: ",
          lines=6),
    Fault("directories in the way", "one lies in the place of every file of the session", LOOP,
          options=("perf_csv=true",),
          prepare=around.in_the_way(Path.mkdir), at=1, act=do.fails_now(frozen_s=0), says="summary: ",
          lines=6),
    Fault("two jobs in one directory", "the same job twice, in the same second by the clock", LOOP,
          prepare=do.fails(frozen_s=around.SECOND), at=1, act=around.two_jobs, jobs=2, short=True),
    Fault("live log is a link", "a symbolic link to another file, planted before the start", LOOP,
          prepare=do.planted_link, says="live log: ", lines=2),
)  # fmt: skip

DISK = (
    Fault("disk full for a while", "file calls fail with ENOSPC from iteration 10 to 50; with phases",
          FLAGSCALE,
          options=WITH_PHASES, at=10, act=do.fails_for_a_while(50, error=errno.ENOSPC), says="No space left",
          lines=6),
    Fault("disk full for a while, 2 ranks", "file calls fail with ENOSPC from iteration 5 to 25", TWO_RANKS,
          at=5, act=do.fails_for_a_while(25, error=errno.ENOSPC), says="No space left", lines=6),
    Fault("disk full for a while, loop", "file calls fail with ENOSPC from iteration 100 to 200", LOOP,
          at=100,
          act=do.fails_for_a_while(200, error=errno.ENOSPC), says="No space left", lines=6, short=True),
    Fault("small disk full for a while",
          "the directory is a file system with room for 96 KiB, until iteration 250", LOOP,
          around=around.nearly_full_mount, act=around.make_room, says="No space left", lines=6),
    Fault("disk full at the start", "file calls fail with ENOSPC until iteration 200", LOOP,
          prepare=do.fails(errno.ENOSPC), at=1, act=do.fails_for_a_while(200), says="No space left", lines=6),
    Fault("disk full for good", "file calls fail with ENOSPC from iteration 100 on", LOOP, at=100,
          act=do.fails_now(error=errno.ENOSPC), loses=LATER, lines=7),
    Fault("quota exceeded for a while", "file calls fail with EDQUOT from iteration 100 to 200", LOOP, at=100,
          act=do.fails_for_a_while(200, error=errno.EDQUOT), says="quota", lines=6),
    Fault("disk broken for a while", "file calls fail with EIO from iteration 100 to 200", LOOP, at=100,
          act=do.fails_for_a_while(200, error=errno.EIO), says="Input/output error", lines=6),
    *(Fault(f"one call in {n} fails, loop", f"one file call in {n} fails with EIO, without a pattern", LOOP,
            prepare=do.fails(errno.EIO, every=n), says=says, lines=7)
      # one in 12 meets only what is tried again: the head, and a look for a request
      for n, says in ((3, REFUSED), (5, REFUSED), (7, REFUSED), (12, ""))),
    Fault("one call in 5 fails", "one file call in 5 fails with EIO, without a pattern", FLAGSCALE,
          prepare=do.fails(errno.EIO, every=5), says="Input/output error", lines=7),
    Fault("short writes", "every write takes a single byte", LOOP, prepare=do.fails(byte=1)),
    Fault("writes take 5 s", "every file call from iteration 20 on takes 5 s, until the end", FLAGSCALE,
          at=20, act=do.fails_now(block_ms=5000), loses=LATER, says=STILL, lines=2),
    Fault("writes take 5 s for a while", "file calls from iteration 100 to 200 take 5 s", LOOP, at=100,
          act=do.fails_for_a_while(200, block_ms=5000), loses=LATER, lines=2),
    Fault("disk stands still for a while", "a file call takes 13 s", LOOP, ("slow",), at=20,
          act=do.fails_for_a_while(40, block_ms=13_000), says=STOOD, lines=1),
    Fault("writes never return", "file calls from iteration 20 on never return", FLAGSCALE, at=20,
          act=do.fails_now(block_ms=-1), loses=LATER, says=STILL, lines=2),
    Fault("writes never return, 2 ranks", "file calls from iteration 10 on never return", TWO_RANKS, at=10,
          act=do.fails_now(block_ms=-1), loses=LATER, says=STILL, lines=2),
    Fault("writes never return, loop", "file calls from iteration 100 on never return", LOOP, at=100,
          act=do.fails_now(block_ms=-1), loses=LATER, says=STILL, lines=2),
    Fault("nothing ever opens", "the first file call never returns", LOOP, prepare=do.fails(block_ms=-1),
          at=100, act=do.is_met, loses=ALL, says=STILL, lines=2),
    Fault("log rotated on a full disk",
          "the text log begins anew after each KiB; file calls fail with ENOSPC from iteration 100 to 200",
          LOOP, prepare=do.small_log_parts(1024), at=100, act=do.fails_for_a_while(200, error=errno.ENOSPC),
          says="No space left", lines=6, then=do.log_has_parts(2)),
    *(Fault(f"log rotated, one call in {n} fails",
            f"the same, and one file call in {n} fails with EIO, without a pattern", LOOP,
            prepare=do.small_log_parts(1024, error=errno.EIO, every=n), says="Input/output error", lines=7,
            then=do.log_has_parts(2)) for n in (3, 5)),
    Fault("log rotated, writer killed",
          "the text log begins anew after each KiB; SIGKILL to the writer process", LOOP,
          prepare=do.small_log_parts(1024), at=100, act=do.kill_writer, says="ended with code -9", lines=1,
          then=do.log_has_parts(2)),
    Fault("no descriptors left", ("RLIMIT_NOFILE of the writer is 3 until iteration 280, and the text log is "
                                  "removed"), LOOP, at=50,
          act=do.take_descriptors_for_a_while(280),
          says="Too many open files", lines=6),
)  # fmt: skip

SYSTEM = (
    Fault("TensorBoard package broken", "an import of tensorboard raises ImportError", LOOP,
          prepare=do.python_file("tensorboard/__init__.py", BROKEN_PACKAGE), says="TensorBoard: ImportError",
          lines=2, short=True),
    Fault("hostname unknown", "gethostname fails with EPERM", LOOP, prepare=do.fails(hostname=errno.EPERM)),
    *(Fault(f"NVML {mode}", f"the driver's library is there and has this fault: {mode}", LOOP,
            options=('facts={"device_uuid": "1"}',), prepare=do.driver(mode)) for mode in ("mismatch", "lost",
            "lying", "hang later")),
    Fault("NVML crashes", "the driver's library calls abort()", LOOP, options=('facts={"device_uuid": "1"}',),
          prepare=do.driver("crash"), says="ended with code -6", lines=1),
    Fault("NVML missing", "a device that no driver's library is there for", LOOP,
          options=('facts={"device_uuid": "1"}',), says="no hardware counters"),
    Fault("Prometheus port taken", "another program listens there", LOOP, options=SCRAPED,
          around=around.port_taken, says="Prometheus port: ", lines=2),
    Fault("clients that hang", "20 connect to the Prometheus port, ask, and never read, until after the end",
          LOOP, options=SCRAPED, at=20, act=around.clients(20, GET)),
    Fault("1000 clients", "1000 connect to the Prometheus port, ask nothing and stay until after the end",
          LOOP, options=SCRAPED, at=20, act=around.clients(1000, b"")),
    Fault("Prometheus textfile unwritable", "its directory is a file", LOOP,
          options=('perf_prometheus_textfile="{DIRECTORY}/way/metrics.prom"',),
          prepare=around.lies_there("way", Path.touch),
          says="Prometheus textfile: NotADirectoryError", lines=2),
    Fault("Prometheus textfile's disk full", "its directory is a full file system", LOOP,
          options=('perf_prometheus_textfile="{DIRECTORY}/full/metrics.prom"',), around=around.full_mount,
          says="Prometheus textfile: OSError", lines=2),
    Fault("Prometheus textfile is a link", "a symbolic link to another file lies in its place", LOOP,
          options=('perf_prometheus_textfile="{DIRECTORY}/metrics.prom"',),
          prepare=around.lies_there("metrics.prom", around.link_to_victim)),
    Fault("NaN and infinity", "the host tells NaN and infinity as its peak and batch", LOOP,
          options=('facts={"peak_flop_per_s": NaN, "model": {"scale": Infinity}}',), short=True),
    Fault("NaN in the model", "a weight is NaN from step 20 on, and the host goes on", FLAGSCALE,
          arguments=GO_ON_WITH_NAN, planted=do.in_a_step(PLANTED_NUMBER.format("nan"))),
    Fault("infinity in the model", "a weight is infinite from step 20 on, and the host goes on", FLAGSCALE,
          arguments=GO_ON_WITH_NAN, planted=do.in_a_step(PLANTED_NUMBER.format("inf"))),
    Fault("NaN ends the training", "a weight is NaN from step 20 on, and the host raises", FLAGSCALE,
          planted=do.in_a_step(PLANTED_NUMBER.format("nan")), reason="exception TypeError"),
    Fault("clock set back", "CLOCK_REALTIME goes back one hour at iteration 20", FLAGSCALE, at=20,
          act=do.wall_clock(-3600), says="the wall clock was set by -3600.0 s"),
    Fault("clock set forward", "CLOCK_REALTIME goes forward one hour at iteration 20", FLAGSCALE, at=20,
          act=do.wall_clock(3600), says="the wall clock was set by +3600.0 s"),
    Fault("clock set back, loop", "CLOCK_REALTIME goes back one hour at iteration 50", LOOP, at=50,
          act=do.wall_clock(-3600), says="the wall clock was set by -3600.0 s", short=True),
    Fault("no threads", "pthread_create fails with EAGAIN in the training", LOOP,
          prepare=do.fails(threads=errno.EAGAIN), loses=ALL,
          says="nothing is recorded: RuntimeError", lines=2, short=True),
    Fault("background thread fails",
          "poll fails with ENOMEM in the training's own process from iteration 50 on", LOOP, at=50,
          act=do.fails_now(poll=errno.ENOMEM), says="no writer process", lines=1),
    Fault("forks in the data loader", "--num-workers 2", FLAGSCALE, arguments=("--num-workers", "2")),
    Fault("fork in a step", "step 20 forks a child that leaves with os._exit(0)", FLAGSCALE,
          planted=do.in_a_step(FORK)),
    Fault("fork in a step, loop", "step 100 forks a child that leaves with sys.exit(3)", LOOP,
          arguments=("fork",)),
)  # fmt: skip

WRITER = (
    Fault("writer killed", "SIGKILL to the writer process; with phases", FLAGSCALE, options=WITH_PHASES,
          at=20, act=do.kill_writer, says="ended with code -9", lines=1),
    Fault("writer killed, 2 ranks", "SIGKILL to the writer process", TWO_RANKS, at=10, act=do.kill_writer,
          says="ended with code -9", lines=1),
    Fault("writer killed, loop", "SIGKILL to the writer process", LOOP, at=100, act=do.kill_writer,
          says="ended with code -9", lines=1, short=True),
    Fault("writer out of memory", "the kernel kills the writer: its cgroup has no memory left", LOOP, at=100,
          act=around.limit_memory(0, Job.writer), says="ended with code -9", lines=1),
    Fault("writer stopped", "SIGSTOP to the writer from iteration 20 to 50", FLAGSCALE, at=20,
          act=do.stop_writer_for_a_while(50)),
    Fault("writer stopped for long", "SIGSTOP to the writer from iteration 20 to 250, 14 s", LOOP, ("slow",),
          at=20, act=do.stop_writer_for_a_while(250), says="training goes on; 65536 records", lines=1),
    Fault("writer stopped at the end", "SIGSTOP to the writer until the training has ended", LOOP, at=100,
          act=do.stop_writer_at_the_end, says=STILL, lines=2),
    Fault("storm of signals", "200 times SIGWINCH, SIGCHLD, SIGURG, SIGCONT to training and writer",
          FLAGSCALE, at=20, act=do.storm),
    Fault("debugger stop", "SIGSTOP to the training for 60 s", FLAGSCALE, at=20, act=do.stop_training(60.0),
          stops_s=60.0),
)  # fmt: skip

ENDS = (
    Fault("kill -9 at random", "SIGKILL to the training at a random moment", LOOP,
          act=do.send_at_random(signal.SIGKILL, 150), code=-signal.SIGKILL, reason="killed", times=100),
    Fault("kill -9 at random, some", "SIGKILL to the training at a random moment", LOOP,
          act=do.send_at_random(signal.SIGKILL, 150),
          code=-signal.SIGKILL, reason="killed", times=5, short=True),
    Fault("kill -9 at random, FlagScale", "SIGKILL to the training at a random moment; with phases",
          FLAGSCALE, options=WITH_PHASES,
          act=do.send_at_random(signal.SIGKILL, 50), code=-signal.SIGKILL, reason="killed", times=5),
    Fault("SIGTERM at random", "SIGTERM to the training at a random moment", FLAGSCALE,
          act=do.send_at_random(signal.SIGTERM, 50), code=-signal.SIGTERM, reason="killed", times=2),
    Fault("SIGINT at random", "SIGINT to the training at a random moment", FLAGSCALE,
          act=do.send_at_random(signal.SIGINT, 50), code=-signal.SIGINT, reason="interrupted", times=2),
    Fault("restarted by torchrun", "--max-restarts=1; step 20 of the first start raises RuntimeError",
          RESTARTED, planted=do.in_a_step(LOST_NODE), jobs=2, reason="exception RuntimeError|completed",
          then=do.sessions_are_restarts),
    Fault("SIGTERM to the agent", "SIGTERM to torchrun", TWO_RANKS, at=10, act=do.send(signal.SIGTERM),
          code=1, reason="killed"),
    Fault("out of memory, kill", ("the kernel kills the training: its cgroup, with the writer in it, has no "
                                  "memory left"), LOOP,
          arguments=("leak",), at=50, act=around.limit_memory(150, Job.rank_0, Job.writer),
          code=-signal.SIGKILL, reason="killed"),
    Fault("out of memory, exception", "RLIMIT_AS: the training gets no more memory and raises MemoryError",
          LOOP, arguments=("memory",),
          at=50, act=do.take_memory, says="MemoryError", code=1, reason="exception MemoryError"),
    Fault("exception", "the training raises ValueError", LOOP, arguments=("raise",),
          reason="exception ValueError", short=True),
    Fault("sys.exit", "the training leaves with sys.exit(3)", LOOP, arguments=("exit",), reason="exit 3",
          short=True),
    Fault("sys.exit in a step", "the optimizer calls sys.exit(7) in step 20", FLAGSCALE,
          planted=do.in_a_step("sys.exit(7)"), reason="exit 7"),
)  # fmt: skip

CATALOG: tuple[Fault, ...] = NO_FAULT + DIRECTORY + DISK + SYSTEM + WRITER + ENDS + RANKS
