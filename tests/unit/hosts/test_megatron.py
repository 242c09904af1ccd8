"""Megatron's loop: its wrappers on a stand-in module with the host's names, and what the host is asked.
The real host is in tests/processes.
"""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts.megatron import HOOK_POINTS, MegatronLoop, patch_loop, patch_steps
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.hosts.timers import SilentTimers
from flagscale_perf.training.work import NOT_COUNTED


class RecordingHooks:
    """Notes every event; `active` and `takes_marks` as the real one, and `attach` does what it is given."""

    def __init__(self, active=True, takes_marks=False):
        self.active, self.takes_marks = active, takes_marks
        self.mark = None
        self.events = []

    def attach(self, action):
        action()

    def profile_on_request(self, make):
        """Nobody asks."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args: self.events.append((name, *args))


@pytest.fixture
def module():
    loop = ModuleType("stand_in_loop")
    for name in HOOK_POINTS:
        setattr(loop, name, lambda *args, _name=name, **kwargs: (_name, args, kwargs))
    return loop


@pytest.fixture
def global_vars(monkeypatch):
    global_vars = ModuleType("megatron.training.global_vars")
    global_vars.get_args = SimpleNamespace
    monkeypatch.setitem(sys.modules, global_vars.__name__, global_vars)
    return global_vars


def patched(module, hooks):
    """With everything in that a monitored training has."""
    patches = Patches()
    patch_loop(module, hooks, patches, rehearsing=False)
    patch_steps(module, hooks, patches)
    return patches


def test_only_train_is_wrapped_before_a_training_and_nothing_stays_behind_after_one(module, global_vars):
    before, timers = dict(vars(module)), SilentTimers()
    global_vars.get_timers = lambda: timers
    seen = []
    module.train = lambda: seen.append((dict(vars(module)), type(timers)))
    plain = dict(vars(module))
    patches = Patches()
    patch_loop(module, RecordingHooks(takes_marks=True), patches, rehearsing=False)
    wrapped = dict(vars(module))
    assert {name for name in wrapped if wrapped[name] is not plain[name]} == {"train"}
    for _ in range(2):
        module.train()
        assert (vars(module), type(timers)) == (wrapped, SilentTimers)
    for inside, kind in seen:
        assert {name for name in HOOK_POINTS if inside[name] is before[name]} == set()
        assert issubclass(kind, SilentTimers)
        assert kind is not SilentTimers
    patches.undo()
    assert vars(module) == plain


def test_an_unmonitored_training_and_one_without_phases_get_only_what_they_need(module, global_vars):
    timers, seen = SilentTimers(), []
    global_vars.get_timers = lambda: timers
    module.train = lambda: seen.append((dict(vars(module)), type(timers)))
    plain, hooks = dict(vars(module)), RecordingHooks(active=False)
    patch_loop(module, hooks, Patches(), rehearsing=False)
    module.train()
    hooks.active = True
    module.train()
    (unmonitored, _), (monitored, kind) = seen
    assert {name for name in plain if unmonitored[name] is not plain[name]} == {"train"}
    assert {name for name in HOOK_POINTS if monitored[name] is plain[name]} == {
        "logical_and_across_model_parallel_group"
    }
    assert kind is SilentTimers


def test_what_fails_while_it_is_put_in_is_told_and_the_training_goes_on(module, global_vars, capsys):
    class Hooks(TrainingHooks):
        takes_marks = True

        def train_start(self, loop):
            self.active = True

    global_vars.get_timers = lambda: 5  # an object whose class cannot be changed
    module.train = lambda: "trained"
    hooks = Hooks()
    patch_loop(module, hooks, Patches(), rehearsing=False)
    plain = dict(vars(module))
    assert module.train() == "trained"
    assert "monitor switched off at attach: TypeError" in capsys.readouterr().err
    assert (hooks.active, vars(module)) == (False, plain)


def test_arguments_and_results_pass_through_every_wrapper(module, global_vars):
    patched(module, RecordingHooks())
    for name in HOOK_POINTS:
        assert getattr(module, name)(1, two=2) == (name, (1,), {"two": 2})


def test_each_wrapper_tells_its_event(module):
    hooks = RecordingHooks()
    patched(module, hooks)
    module.train_step()
    module.training_log(1, total_real_tokens_in_batch=17.0, seqlen_squared_sum_in_batch=83.0)
    module.training_log(1)
    module.training_log(1, total_real_tokens_in_batch=float("nan"), seqlen_squared_sum_in_batch=object())
    module.evaluate_and_print_results()
    module.extra_evaluate_and_print_results()
    module.build_extra_valid_data_iterators()
    module.save_checkpoint_and_time()
    module.maybe_finalize_async_save()
    module.update_num_microbatches(5, consistency_check=False, verbose=True)
    module.update_num_microbatches(5, consistency_check=True, verbose=True)
    result = ("train_step", (), {})
    assert hooks.events == [
        ("step_start",),
        ("step_end", result),
        ("logged", 17, 83),
        ("logged", None, None),
        ("logged", None, None),
        *[("pause", "eval"), ("resume", "eval")] * 3,
        ("pause", "checkpoint"),
        ("resume", "checkpoint"),
        ("pause", "checkpoint"),
        ("resume", "checkpoint"),
        ("loop_top",),
    ]
    hooks.events.clear()
    module.dummy_train_step()
    assert [event[0] for event in hooks.events] == ["data_skipped"]


def test_nothing_is_told_while_inactive(module):
    hooks = RecordingHooks(active=False)
    patched(module, hooks)
    for name in HOOK_POINTS:
        if name != "train":
            getattr(module, name)(consistency_check=False)
    assert hooks.events == []


@pytest.mark.parametrize("error", [ValueError("host"), SystemExit(3), KeyboardInterrupt()])
def test_the_hosts_own_way_out_of_train_passes_unchanged(module, global_vars, error):
    def train():
        raise error

    module.train = train
    hooks = RecordingHooks()
    patched(module, hooks)
    with pytest.raises(type(error)) as raised:
        module.train()
    assert raised.value is error
    assert hooks.events[0][0] == "train_start"
    assert hooks.events[1:] == [("train_end", error)]


def test_a_pause_ends_when_the_host_raises_in_it(module):
    def save(*args):
        raise OSError("disk")

    module.save_checkpoint_and_time = save
    hooks = RecordingHooks()
    patched(module, hooks)
    with pytest.raises(OSError, match="disk"):
        module.save_checkpoint_and_time()
    assert hooks.events == [("pause", "checkpoint"), ("resume", "checkpoint")]


def test_undo_gives_the_host_its_functions_back(module):
    before = dict(vars(module))
    patches = patched(module, RecordingHooks())
    assert vars(module) != before
    patches.undo()
    assert vars(module) == before


def test_a_module_without_a_loop_is_left_alone():
    module = ModuleType("no_loop")
    module.train = before = lambda: None
    patched(module, RecordingHooks())
    assert module.train is before


@pytest.fixture
def host_args(monkeypatch):
    args = SimpleNamespace(
        rank=0,
        curr_iteration=6,
        consumed_train_samples=48,
        data_parallel_size=2,
        micro_batch_size=2,
        seq_length=8,
        iteration=0,
    )
    monkeypatch.setitem(sys.modules, "megatron.training.global_vars", SimpleNamespace(get_args=lambda: args))
    monkeypatch.setitem(
        sys.modules,
        "megatron.core.num_microbatches_calculator",
        SimpleNamespace(get_num_microbatches=lambda: 3),
    )
    return args


def test_numbers_of_a_step_are_the_hosts(module, host_args):
    loop = MegatronLoop(module, rehearsing=False)
    assert loop.position() == (6, 48)
    assert loop.skipped_samples() == 12
    assert loop.numbers(({}, 0, False, False, 0, 1.0, None)) == (7, True, 12, 96, 3, NOT_COUNTED, None)
    skipped = loop.numbers(({}, 1, False, False, 0, None, None, None))
    assert skipped == (7, False, 12, 96, 3, NOT_COUNTED, None)
    assert loop.numbers(({}, True, False, True, 17, None, None)) is None


def test_a_job_of_several_device_types_says_how_many_ranks_have_each(module, host_args):
    loop = MegatronLoop(module, rehearsing=False)
    assert loop.device_types() == {}
    host_args.enable_hetero = True
    host_args.hetero_device_types = ["A800", "BI-V150", "A800"]
    host_args.hetero_process_meshes = [
        [2, 1, 1, 4, 1],
        [4, 2, 2, 2, 1],
        [1, 1, 1, 3, 2],
    ]  # TP, CP, EP, DP, PP
    assert loop.device_types() == {"A800": 8 + 6, "BI-V150": 16}


COMPLETE = {
    "world_size": 1,
    "tensor_model_parallel_size": 1,
    "pipeline_model_parallel_size": 1,
    "bf16": True,
    "fp16": False,
    "global_batch_size": 4,
    "train_iters": 3,
    "tensorboard_dir": None,
}


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        ({"reset_attention_mask": True}, "--reset-attention-mask"),
        (
            {"sft": True, "enable_variable_seq_lengths": True, "variable_seq_lengths": False},
            "--sft, --enable-variable-seq-lengths",
        ),
        (
            {"sequence_packing_scheduler": "dp_balanced", "use_varlen_dataset": True},
            "--sequence-packing-scheduler, --use-varlen-dataset",
        ),
    ],
)
def test_packing_whose_lengths_nobody_may_tell_is_a_gap(module, host_args, arguments, flags):
    vars(host_args).update(COMPLETE)
    loop = MegatronLoop(module, rehearsing=False)
    assert loop.facts("CPU").missing == []
    vars(host_args).update(arguments)
    assert loop.facts("CPU").missing == [
        f"lengths of packed documents ({flags}): FLOPs count whole sequences where the host gives none"
    ]


def test_beside_curves_at_an_address_there_are_none_of_ours(module, host_args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    vars(host_args).update(COMPLETE | {"tensorboard_dir": "s3://bucket/tb"})
    facts = MegatronLoop(module, rehearsing=False).facts("CPU")
    assert (facts.tensorboard_dir, facts.missing) == (
        None,
        ["curves beside the host's (s3://bucket/tb is an address; they are in --perf-log-dir)"],
    )
    host_args.tensorboard_dir = "tb"
    assert MegatronLoop(module, rehearsing=False).facts("CPU").tensorboard_dir == str(tmp_path / "tb")


@pytest.mark.parametrize(
    ("arguments", "schedule"),
    [
        ({"pipeline_model_parallel_size": 1}, None),
        ({"pipeline_model_parallel_size": 4}, "1f1b"),
        ({"pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": None}, "1f1b"),
        ({"pipeline_model_parallel_size": 4, "virtual_pipeline_model_parallel_size": 2}, "interleaved"),
        ({"pipeline_model_parallel_size": 4, "use_dualpipev": True}, "dualpipev"),
    ],
)
def test_the_pipelines_schedule_is_in_the_facts(module, host_args, arguments, schedule):
    vars(host_args).update(
        world_size=4,
        tensor_model_parallel_size=1,
        bf16=True,
        fp16=False,
        global_batch_size=4,
        train_iters=3,
        tensorboard_dir=None,
        **arguments,
    )
    assert MegatronLoop(module, rehearsing=False).facts("CPU").pipeline_schedule == schedule


def test_phases_are_told_where_the_host_has_timers_that_are_asked_for_as_ever(module, global_vars):
    class Others:
        def __call__(self, name, log_level=None, stream=None):
            return None

    loop = MegatronLoop(module, rehearsing=False)
    assert not loop.names_phases()
    told = []
    for timers in (None, object(), Others(), SilentTimers()):
        global_vars.get_timers = lambda timers=timers: timers
        told.append(loop.names_phases())
    assert told == [False, False, False, True]


def test_what_does_not_change_in_a_training_is_looked_up_once(module, host_args):
    loop = MegatronLoop(module, rehearsing=False)
    before = loop.numbers(({}, 0, False, False))
    host_args.curr_iteration, host_args.micro_batch_size = (
        7,
        None,
    )  # the second would raise if it was asked for
    assert loop.numbers(({}, 0, False, False)) == before._replace(iteration=8)


@pytest.mark.parametrize(("saves_asynchronously", "events"), [(True, ["pause", "resume"]), (False, [])])
def test_the_end_of_asynchronous_saving_is_watched_where_there_is_such_saving(
    module, host_args, saves_asynchronously, events
):
    host_args.async_save = saves_asynchronously
    hooks = RecordingHooks()
    patched(module, hooks)
    module.maybe_finalize_async_save()
    assert [event for event, *_ in hooks.events] == events


def test_a_hook_point_that_is_missing_is_said_by_what_is_lost(module, host_args):
    vars(host_args).update(COMPLETE)
    del module.training_log, module.extra_evaluate_and_print_results  # only FlagScale has the second
    lost = [HOOK_POINTS["training_log"].cost]
    assert MegatronLoop(module, rehearsing=False).facts("CPU").missing == lost
    host_args.extra_eval_interval = 100
    lost.append("extra evaluation time (it counts as iteration time)")
    assert MegatronLoop(module, rehearsing=False).facts("CPU").missing == lost


def test_the_micro_batches_of_a_packed_step_are_those_that_the_host_made(module, host_args):
    returned = ({}, 0, False, False, 0, 1.0, None, 0, 5, 83.0, 1234.0)
    assert MegatronLoop(module, rehearsing=False).numbers(returned) == (7, True, 12, 96, 3, NOT_COUNTED, None)
    host_args.sequence_packing_scheduler = "dp_balanced"
    loop = MegatronLoop(module, rehearsing=False)
    assert loop.numbers(returned) == (7, True, 12, 96, 5, NOT_COUNTED, None)
    assert loop.numbers(returned[:8]) == (7, True, 12, 96, 3, NOT_COUNTED, None)
