"""What run.py refuses before anything is started, as a user types it: the message is all that is printed."""

import re

from tests.processes.test_run_py import AQUILA, RUN_PY, data, run_py, starts
from tests.typed import Typed, typed

__all__ = ["data", "run_py", "starts"]


def test_what_cannot_be_rehearsed_here_is_refused_with_figures_and_a_line_that_works(
    run_py, starts, tmp_path, data
) -> None:
    typed = [*AQUILA, "action=run", "train.system.enable_perf_monitor=true", data]
    refused = run_py(*typed)
    assert (refused.returncode, refused.stdout) == (2, "")
    first, rank, proposal, *_ = refused.stderr.splitlines()[:1] + refused.stderr.splitlines()[2:]
    wanted = r"8 ranks of this model need about \d{3,4} GB on the CPU"
    assert re.fullmatch(rf"run.py: memory: {wanted}, and [\d.]+ GB is free \(.*\)\.", first)
    # 7.3e9 parameters of 2 + 4 bytes, and 12 bytes of the optimizer's over 8 ranks
    assert rank.startswith("    a rank: 55 GB for weights, gradients and optimizer, ")
    assert not (tmp_path / "outputs").exists()
    smaller = proposal.removeprefix("    to try it here, add: ").split()
    assert "experiment.runner.nproc_per_node=1" in smaller
    written = run_py(*typed, "action=dryrun")
    assert written.returncode == 0
    assert "action=run would refuse this job here: memory: 8 ranks" in written.stdout
    done = run_py(*typed, *smaller, "experiment.task.entrypoint=stand_in.py")
    assert (done.returncode, done.stderr, len(starts())) == (0, "", 1)


MISTAKES = [
    (
        ["experiment.exp_dir=./${hydra:job.num}"],
        "experiment.exp_dir: hydra.job.num is known only in a sweep (run.py -m); write a name of your own",
    ),
    (
        ["experiment.exp_dir=./${hydra.job.id}"],
        "experiment.exp_dir: hydra.job.id is known only in a sweep (run.py -m); write a name of your own",
    ),
    (
        ["action=fly"],
        "action: 'fly' is not one of run, dryrun, test, stop, query; write for example action=run",
    ),
    (
        ["action=[run]"],
        "action: ['run'] is not one of run, dryrun, test, stop, query; write for example action=run",
    ),
    (
        ["train.system.perf_log_interval=0"],
        "train.system.perf_log_interval: 0 is not a whole number from 1 to 1000000000; write for example 10",
    ),
    (
        ["train.system.perf_log_dir=/proc/nope"],
        "train.system.perf_log_dir: '/proc/nope' cannot be written: /proc: No such file or directory; give a"
        " place that can, for example train.system.perf_log_dir=./outputs/logs/perf_monitor",
    ),
    (
        ["train.system.perf_log_dir="],
        "train.system.perf_log_dir: '' is not a usable path; write for example logs/perf_monitor",
    ),
    (
        ["+train.system.perf_log_intervall=5"],
        "train.system.perf_log_intervall: the monitor has no such option; did you mean perf_log_interval?",
    ),
    (
        ["experiment.runner.nproc_per_node=two"],
        "experiment.runner.nproc_per_node: 'two' is not a whole number above 0, auto, gpu or "
        "cpu; write for example 8",
    ),
    (
        ["+experiment.envs.FLAGSCALE_PERF_INTERVAL=5"],
        "experiment.envs.FLAGSCALE_PERF_INTERVAL: no option of the monitor has this variable; "
        "did you mean FLAGSCALE_PERF_LOG_INTERVAL?",
    ),
    (["train=7b"], "train.data.data_path: has no value yet; add train.data.data_path=VALUE to the command"),
    (
        ["experiment.runner.background=1"],
        "experiment.runner.background: 1 is neither true nor false; write true or false",
    ),
    (
        ["experiment.task.flagscale_root=none"],
        "experiment.task.flagscale_root: 'none' is not a FlagScale tree (no flagscale/train "
        "in it); give its root directory",
    ),
]


def test_mistakes_are_told_without_traceback_and_nothing_is_written(run_python) -> None:
    assert typed(run_python, [(RUN_PY, *words) for words, _ in MISTAKES]) == [
        Typed(2, "", f"run.py: {message}\n", []) for _, message in MISTAKES
    ]
