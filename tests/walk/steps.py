"""What is typed for each command of the README, where, and what must come of it (docs: docs_steps.py)."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from tests.processes import flagscale as fs


class Place(Enum):
    """Where a command is typed."""

    WHEEL = "an empty environment into which the wheel was installed, with what it asks for"
    BARE = "an empty environment into which the wheel alone was installed"
    HOST = "an environment with FlagScale and torch, into which the wheel was installed"
    CHECKOUT = "this checkout"


@dataclass(frozen=True)
class Typed:
    """One command line.

    Attributes:
        words: for a shell.
        shows: text in what it prints.
        codes: exit codes that are right.
        is_left: it goes on until the user leaves it with Ctrl-C, as soon as it shows the text.
    """

    words: str
    shows: str = ""
    codes: tuple[int, ...] = (0,)
    is_left: bool = False


@dataclass(frozen=True)
class Step:
    """A command of a page.

    Attributes:
        command: as it stands there.
        place: where it is typed; None for nowhere.
        typed: what is typed, with a value for each thing that the page leaves open.
        instead: why it is typed nowhere.
        after: steps that make what it reads, besides TRAININGS.
    """

    command: str
    place: Place | None
    typed: tuple[Typed, ...] = ()
    instead: str = ""
    after: tuple[Step, ...] = ()


def as_it_stands(place: Place, command: str, shows: str, *codes: int) -> Step:
    """A command that leaves nothing open."""
    return Step(command, place, (Typed(command, shows, codes or (0,)),))


ITERATIONS = 60  # a slow start may take half of them, and `compare` asks for 16 others
LAST, ALL = f"iteration       {ITERATIONS}/", f"{ITERATIONS} (1 to {ITERATIONS}) of {ITERATIONS}"
OPTIONS = f"--train-iters {ITERATIONS} --perf-log-interval 5"
TRAIN = f"{shlex.quote(str(fs.train_gpt()))} {shlex.join(fs.TINY)} {OPTIONS}"
TORCHRUN = f"torchrun --nproc_per_node=2 --master_port={fs.free_port()}"
RUN = "logs/perf_monitor"  # of the first training
AGAIN = "enabled"  # of the second one, which is the same

SLOWED_PARTS = Path(fs.__file__).with_name("slowed_parts.py")
# A run of one's own: one variable switches the monitor on, another its phases; one of its ranks is slow.
FIRST_REMARK = Typed(
    "FLAGSCALE_PERF_ENABLE_MONITOR=1 FLAGSCALE_PERF_BREAKDOWN=1 FLAGSCALE_PERF_LOG_DIR=first"
    f" {TORCHRUN} -m flagscale_perf.launch {SLOWED_PARTS} backward:0.2:steps:1 {TRAIN} >first.txt 2>&1 &"
    " flagscale-perf watch first; wait",
    "slow: rank 1",
    is_left=True,
)

LAUNCH = Step(
    "torchrun --nproc_per_node=8 -m flagscale_perf.launch flagscale/train/megatron/train_gpt.py ..."
    " --enable-perf-monitor",
    Place.HOST,
    (
        Typed(
            f"{TORCHRUN} -m flagscale_perf.launch {TRAIN} --enable-perf-monitor",
            f"iteration       {ITERATIONS}/",
        ),
    ),
)
ENABLE = Step(
    "flagscale-perf enable",
    Place.HOST,
    (
        Typed("flagscale-perf enable", "enabled: "),
        Typed(
            f"{TORCHRUN} {TRAIN} --enable-perf-monitor --perf-log-dir {AGAIN}",
            f"iteration       {ITERATIONS}/",
        ),
    ),
)
DEMO = Step("make demo", Place.HOST, (Typed("python run.py train.model.train_iters=12", "exit status 0"),))
TRAININGS = (LAUNCH, ENABLE, DEMO)  # what the commands that read find

SERVE = Step(
    f"flagscale-perf serve {RUN}",
    Place.WHEEL,
    (
        Typed(f"flagscale-perf serve {RUN}", "serve needs uvicorn, which is not installed", (2,)),
        Typed('pip install --disable-pip-version-check "$WHEEL[serve]"'),
        Typed(f"flagscale-perf serve {RUN}", "http://127.0.0.1:", is_left=True),
    ),
)
QUERY = Step(
    FINDINGS := 'flagscale-perf query outputs "select * from findings"',
    Place.WHEEL,
    (
        Typed(FINDINGS, "query needs pyarrow, which is not installed", (2,)),
        Typed('pip install --disable-pip-version-check "$WHEEL[tables]"'),
        Typed(FINDINGS, "cost_s"),
    ),
)
WHEEL_STEPS = (
    Step(
        "pip install .",
        Place.WHEEL,
        (Typed("pip check", "No broken requirements"), Typed("flagscale-perf --version", "flagscale-perf ")),
    ),
    as_it_stands(Place.WHEEL, "flagscale-perf doctor", "none found; ", 1),
    Step(
        ".venv/bin/tensorboard --logdir outputs/tensorboard",
        Place.WHEEL,
        (Typed("tensorboard --logdir outputs/tensorboard --port 0", "http://localhost:", is_left=True),),
    ),
    Step(
        f"tail -f {RUN}/perf_realtime.log",
        Place.WHEEL,
        (Typed(f"tail -f {RUN}/perf_realtime.log", "end: completed", is_left=True),),
    ),
    Step(
        f"flagscale-perf watch {RUN}",
        Place.WHEEL,
        (Typed(f"flagscale-perf watch {RUN}", "COMPLETED", is_left=True),),
    ),
    as_it_stands(
        Place.WHEEL,
        f"flagscale-perf report {RUN}",
        f"iterations        {ITERATIONS} (1 to {ITERATIONS}) of {ITERATIONS}",
    ),
    Step(
        f"flagscale-perf report {RUN} --format html -o report.html",
        Place.WHEEL,
        (
            Typed(f"flagscale-perf report {RUN} --format html -o report.html"),
            Typed("head -c 15 report.html", "<!DOCTYPE html>"),
            Typed(f"flagscale-perf report {RUN} --format png -o report.png"),
            Typed("head -c 4 report.png", "PNG"),
            Typed(f"flagscale-perf report {RUN} --format markdown", "# Run"),
            Typed(f"flagscale-perf report {RUN} --format json", '"overview"'),
            Typed(f"flagscale-perf report {RUN} --format csv", "tflops_per_gpu"),
        ),
    ),
    as_it_stands(Place.WHEEL, f"flagscale-perf report {RUN} --all-sessions", "wall time"),
    Step(
        "flagscale-perf runs outputs --format html -o runs.html",
        Place.WHEEL,
        (
            Typed("flagscale-perf runs outputs", " in outputs"),
            Typed("flagscale-perf runs outputs --format html -o runs.html"),
            Typed("head -c 15 runs.html", "<!DOCTYPE html>"),
        ),
    ),
    SERVE,
    QUERY,
    Step(
        "flagscale-perf compare BASE NEW --fail-if-slower 3%",
        Place.WHEEL,
        # Noise decides which it is: not slower, slower, or too few steps to say.
        (Typed(f"flagscale-perf compare {RUN} {AGAIN} --fail-if-slower 3%", "compared by ", (0, 1, 3)),),
    ),
)
DRYRUN = "action=dryrun"
HOST_STEPS = (
    *TRAININGS,
    Step(
        "flagscale-perf disable",
        Place.HOST,
        (
            Typed("flagscale-perf disable", "disabled: "),
            Typed(f"{TORCHRUN} {TRAIN} --enable-perf-monitor", "Error", codes=(1,)),
        ),
    ),
    Step(
        "python run.py train=7b_with_perf_monitor train.data.data_path=...",
        Place.HOST,
        (
            Typed(
                f"python run.py train=7b_with_perf_monitor train.data.data_path=data {DRYRUN}",
                "host_0_localhost_run.sh",
            ),
        ),
    ),
    Step(
        "python run.py train.system.enable_perf_monitor=true",
        Place.HOST,
        (Typed(f"python run.py train.system.enable_perf_monitor=true {DRYRUN}", "host_0_localhost_run.sh"),),
    ),
)
BENCH = as_it_stands(
    Place.HOST, "flagscale-perf bench bandwidth --quick -o outputs/bench", "wrote outputs/bench: "
)
OTHER_STEPS = (
    Step(
        "pip install --no-deps .",
        Place.BARE,
        (
            Typed("flagscale-perf doctor", "MISSING", codes=(1,)),
            Typed(f"flagscale-perf report {RUN}", "reading a run file needs msgspec", codes=(2,)),
            Typed("python run.py", "run.py needs hydra-core, which is not installed", codes=(2,)),
        ),
    ),
    Step(
        "make help",
        Place.CHECKOUT,
        (Typed("make help", "make demo"), Typed("make -n demo", ".venv/bin/python run.py")),
    ),
    as_it_stands(Place.CHECKOUT, "make demo-rpc", "equal to the monolithic model, bit for bit"),
    Step(
        "make demo-trace",
        None,
        instead="Ray, TransferQueue and verl have an environment of their own: tests/trace/test_example.py",
    ),
    as_it_stands(Place.CHECKOUT, "make demo-profile", "Key figures"),
    as_it_stands(
        Place.HOST,
        "flagscale-perf profile predict --model DIR --seq-length 4096 --device H200",
        "NVIDIA H200",
    ),
    BENCH,
    Step("make test", None, instead="it runs the other tests; .ci/parts.toml has it as a part"),
    Step("make bench NAME=overhead", None, instead="half an hour on an idle machine; see benchmarks/results"),
)
STEPS = (*WHEEL_STEPS, *HOST_STEPS, *OTHER_STEPS)
