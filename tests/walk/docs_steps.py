"""What is typed for the commands of docs, on runs of every instrument."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.every_instrument import write
from tests.walk.steps import AGAIN, BENCH, DRYRUN, RUN, SERVE, Place, Step, Typed, as_it_stands

# As a page calls it -> what it leads to, in the directory of the walk.
LINKS = {"RUN": RUN, "BASE": RUN, "NEW": AGAIN, "outputs/changed": "profile", "outputs/vllm": "profile"}
# Runs that no step makes, and the instruments that they are of.
LENT = {
    **dict.fromkeys(("A1", "A2", "A3", "B1", "B2", "B3", "DIR/perf"), "training"),
    **dict.fromkeys(("outputs/before", "outputs/after"), "bench"),
    **dict.fromkeys(("examples/tee_gpu/BEFORE", "examples/tee_gpu/AFTER"), "rpc"),
    **dict.fromkeys(("BASE_DIR", "NEW_DIR", "logs/trace"), "trace"),
}
THERE = "cd examples/tee_gpu"
HUGGING_FACE = """{"model_type": "qwen3", "vocab_size": 1024, "hidden_size": 64, "num_hidden_layers": 2,
 "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
 "tie_word_embeddings": false}"""
MEGATRON = """{"num_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "seq_length": 64,
 "padded_vocab_size": 1024, "global_batch_size": 8}"""


def lend(directory: Path) -> None:
    """What the commands of docs are typed on and no step makes: runs that would take several machines, Ray or
    many minutes, models, and other names for runs that steps make.
    """
    for number, (name, instrument) in enumerate(LENT.items()):
        (directory / name).mkdir(parents=True)
        (scratch := directory.parent / f"lent_{number}").mkdir()
        made = write(instrument, scratch, "completed", session_id=f"20240129_1030{number:02}")
        path = made.rename(directory / name / made.name)
        if instrument == "trace":
            path.write_bytes(path.read_bytes().replace(b'"train"', b'"train_0"'))
    for path in (directory / "config.json", directory / "DIR/config.json"):
        path.write_text(HUGGING_FACE)
    (directory / "model.json").write_text(MEGATRON)
    for name, target in LINKS.items():
        (directory / name).symlink_to(target)


def read(command: str, shows: str) -> Step:
    """A command that needs nothing but the wheel."""
    return as_it_stands(Place.WHEEL, command, shows)


def compared(command: str) -> Step:
    """Whatever comes of it: noise decides."""
    return as_it_stands(Place.WHEEL, command, "compared by ", 0, 1, 3)


def written(command: str, shows: str) -> Step:
    """A command that writes the file that it names last, and the beginning of that file."""
    return Step(command, Place.WHEEL, (Typed(command), Typed(f"head -c 300 {command.split()[-1]}", shows)))


def left(command: str, shows: str) -> Step:
    """A command that the user leaves."""
    return Step(command, Place.WHEEL, (Typed(command, shows, is_left=True),))


def of_calls(step: Step) -> Step:
    """The same in the directory that the page has gone to."""
    return replace(step, typed=tuple(replace(each, words=f"{THERE}; {each.words}") for each in step.typed))


def behind(first: Step, *steps: Step) -> tuple[Step, ...]:
    """Steps that read what the first one makes."""
    return first, *(replace(step, after=(first,)) for step in steps)


READING = (
    left("flagscale-perf watch RUN", "COMPLETED"),
    read("flagscale-perf report RUN", "found  "),
    read("flagscale-perf report RUN --full", "perf_log_interval"),
    written("flagscale-perf report RUN -o report.html", "<!DOCTYPE html>"),
    written("flagscale-perf report RUN --format json -o report.json", '"overview"'),
    read("flagscale-perf report RUN --all-sessions", "wall time"),
    replace(left("flagscale-perf serve RUN", "http://127.0.0.1:"), after=(SERVE,)),
    compared("flagscale-perf compare BASE NEW"),
    written("flagscale-perf compare BASE NEW --format html -o compare.html", "<!DOCTYPE html>"),
    compared("flagscale-perf compare A1 B1 --more-base A2 A3 --more-new B2 B3"),
    read("flagscale-perf runs DIR", "1 run in "),
    written("flagscale-perf trace-export RUN -o trace.json", '"traceEvents"'),
    as_it_stands(Place.HOST, "python examples/analysis/plot_summary.py logs/perf_monitor", ""),
    Step(
        "tensorboard --logdir=./tb_logs",
        Place.WHEEL,
        (Typed("tensorboard --logdir=./tb_logs --port 0", "http://localhost:", is_left=True),),
    ),
)
LAUNCHING = (
    Step("python run.py", Place.HOST, (Typed(f"python run.py {DRYRUN}", "host_0_localhost_run.sh"),)),
    as_it_stands(
        Place.HOST,
        f"python run.py train=7b_with_perf_monitor {DRYRUN} train.data.data_path=PREFIX",
        "host_0_localhost_run.sh",
    ),
)
FLOPS = (
    read("flagscale-perf flops --args model.json --batch-size 128", "128 sequences of 64 tokens"),
    read("flagscale-perf flops --args examples/aquila/conf/train/7b.yaml", "aquila, "),
    read(
        "flagscale-perf flops --args config.json --seq-length 4096 --batch-size 128",
        "sequences of 4096 tokens",
    ),
    read("flagscale-perf flops --args model.json --json", '"totals"'),
)
PROFILES = (
    *behind(
        as_it_stands(
            Place.HOST,
            "flagscale-perf profile run --num-tokens 128 --profile-steps 5 --dir outputs/profile",
            "wrote outputs/profile: ",
        ),
        read(
            "flagscale-perf profile report outputs/profile --out outputs/profile/files",
            "wrote outputs/profile/files: ",
        ),
        written("flagscale-perf report outputs/profile -o report.html", "<!DOCTYPE html>"),
        compared("flagscale-perf compare outputs/profile outputs/changed --fail-if-slower 3%"),
        written("flagscale-perf trace-export outputs/profile -o perfetto.json", '"traceEvents"'),
        read("flagscale-perf report outputs/vllm", "found  "),
    ),
    as_it_stands(
        Place.HOST,
        "flagscale-perf profile predict --model config.json --seq-length 4096 --device H200",
        "NVIDIA H200",
    ),
    as_it_stands(Place.HOST, "flagscale-perf profile predict --model DIR", "predicted"),
)
CALLS = behind(
    Step(
        "python tee_runner_optimized.py",
        Place.HOST,
        (
            Typed(
                f"{THERE}; export LLAMA_IPC_PATH=ipc://$PWD/gpu.ipc; python server_optimized.py >server.log &"
                " python tee_runner_optimized.py; code=$?; kill $!; exit $code",
                "RPC Time:",
            ),
        ),
    ),
    of_calls(left("tail -f zmq_performance.log", "Ended")),
    of_calls(read("python analyze_zmq_performance.py zmq_performance.log", "OPTIMIZATION RECOMMENDATIONS")),
    of_calls(read("flagscale-perf report logs/rpc", "found  ")),
    of_calls(left("flagscale-perf watch logs/rpc", "COMPLETED")),
    of_calls(compared("flagscale-perf compare BEFORE AFTER")),
    of_calls(read("flagscale-perf trace-export logs/rpc", "perfetto")),
)
TRACES = (
    read("python scripts/analyze_tq_logs.py logs/trace", "7.81%"),
    read("flagscale-perf report logs/trace", "found  "),
    read("flagscale-perf report logs/trace --sample train_0:17", "Sample 17 of partition train_0"),
    left("flagscale-perf watch logs/trace", "COMPLETED"),
    compared("flagscale-perf compare BASE_DIR NEW_DIR"),
    read("flagscale-perf trace-export logs/trace", "perfetto"),
    *behind(
        Step(
            "pip install 'flagscale-perf[trace]'",
            Place.WHEEL,
            (Typed('pip install --disable-pip-version-check "$WHEEL[trace]"'),),
        ),
        written(
            "flagscale-perf trace-export logs/trace --format otlp -o spans.otlp.ndjson", '"resourceSpans"'
        ),
    ),
)
EXPERIMENTS = (
    *behind(
        BENCH,
        read("flagscale-perf report outputs/bench", "Experiments of session"),
        read("flagscale-perf bench report outputs/bench", "wrote outputs/bench: "),
    )[1:],
    compared("flagscale-perf compare outputs/before outputs/after --fail-if-slower 5%"),
)
DOCS_STEPS = (*READING, *LAUNCHING, *FLOPS, *PROFILES, *CALLS, *TRACES, *EXPERIMENTS)
