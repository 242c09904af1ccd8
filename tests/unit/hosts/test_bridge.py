"""The callback and the wrappers, on stand-in modules shaped like Bridge 0.3.1's; the real one is in
tests/processes.
"""

import gc
import sys
import weakref
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace

import pytest

from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.hosts import bridge
from flagscale_perf.hosts.core_loop import MICROBATCHES_MODULE
from flagscale_perf.hosts.patching import Patches
from flagscale_perf.spine.errors import PerfError
from tests.unit.hosts.test_megatron import RecordingHooks

EVENTS = ("on_train_start", "on_train_step_start", "on_train_step_end", "on_train_end")


class Manager:
    """As Bridge's: keeps the bound methods of what is added, by event."""

    def __init__(self):
        self.callbacks = {event: [] for event in EVENTS}

    def add(self, callback):
        for event in EVENTS:
            if method := getattr(callback, event, None):
                self.callbacks[event].append(method)

    def list_callbacks(self, event):
        return list(self.callbacks[event])

    def fire(self, event, context):
        for callback in self.callbacks[event]:
            callback(context)


def normalize(callbacks):
    if callbacks is None or isinstance(callbacks, Manager):
        return callbacks
    manager = Manager()
    for callback in callbacks:
        manager.add(callback)
    return manager


@pytest.fixture
def modules(monkeypatch):
    """(pretrain, train): the entry's module and the loop's."""
    pretrain, train = ModuleType(bridge.PRETRAIN_MODULE), ModuleType(bridge.LOOP_MODULE)
    pretrain.normalize_callbacks = normalize
    pretrain.train = lambda *args, **kwargs: (args, kwargs)
    for name in bridge.LOOP_POINTS:
        setattr(train, name, lambda *args, _name=name, **kwargs: (_name, args, kwargs))
    train.train_step = lambda result: result
    monkeypatch.setitem(sys.modules, bridge.LOOP_MODULE, train)
    monkeypatch.setitem(sys.modules, MICROBATCHES_MODULE, SimpleNamespace(get_num_microbatches=lambda: 3))
    return pretrain, train


@pytest.fixture
def context():
    cfg = SimpleNamespace(
        data_parallel_size=2,
        train=SimpleNamespace(micro_batch_size=2, global_batch_size=12, train_iters=9),
        model=SimpleNamespace(seq_length=8),
        dataset=SimpleNamespace(dataloader_type="single"),
        logger=SimpleNamespace(tensorboard_dir=None),
    )
    state = SimpleNamespace(cfg=cfg, train_state=SimpleNamespace(step=6, consumed_train_samples=72))
    return SimpleNamespace(state=state, model=[SimpleNamespace(config=None)], skipped_iter=False)


def patched(modules, hooks, is_on=lambda: True):
    patches = Patches()
    bridge.patch_bridge(modules[0], hooks, patches, False, is_on)
    return patches


@pytest.mark.parametrize("given", [None, []])
def test_a_user_without_callbacks_gets_a_manager_with_ours(modules, context, given):
    hooks = RecordingHooks()
    patched(modules, hooks)
    manager = modules[0].normalize_callbacks(given)
    manager.fire("on_train_start", context)
    manager.fire("on_train_step_start", context)
    manager.fire("on_train_step_end", context)
    assert [event[0] for event in hooks.events] == ["train_start", "step_start", "step_end"]
    assert hooks.events[2] == ("step_end", context)


def test_a_users_manager_stays_the_users_and_gets_ours_once(modules):
    patched(modules, RecordingHooks())
    manager = Manager()
    assert modules[0].normalize_callbacks(manager) is manager
    assert modules[0].normalize_callbacks(manager) is manager
    assert [len(manager.list_callbacks(event)) for event in EVENTS] == [1, 1, 1, 0]


def test_a_bridge_for_which_the_monitor_is_not_asked_keeps_its_callbacks_and_functions(modules):
    hooks, before = RecordingHooks(), dict(vars(modules[1]))
    patched(modules, hooks, lambda: False)
    assert modules[0].normalize_callbacks(None) is None
    manager = modules[0].normalize_callbacks(Manager())
    assert [len(manager.list_callbacks(event)) for event in EVENTS] == [0] * 4
    modules[0].train()
    assert vars(modules[1]) == before


def test_a_wrong_option_is_seen_before_the_host_sets_anything_up(modules):
    def refuse():
        raise SystemExit(2)

    patched(modules, RecordingHooks(), refuse)
    with pytest.raises(SystemExit):
        modules[0].normalize_callbacks(None)


def test_what_a_later_bridge_may_lack_does_not_end_its_training(modules, context, capsys):
    class Stranger:
        def list_callbacks(self, event):
            raise AttributeError("no such thing")

    stranger = Stranger()
    modules[0].normalize_callbacks = lambda callbacks: stranger
    patched(modules, TrainingHooks())
    assert modules[0].normalize_callbacks(None) is stranger
    assert "monitor switched off at attach: AttributeError: no such thing" in capsys.readouterr().err


def test_steps_have_the_hosts_integers_and_an_abandoned_one_does_not_count(modules, context):
    hooks, (pretrain, train) = RecordingHooks(), modules

    def body(manager):
        train_step = train.train_step  # as Bridge: before it fires the first event
        manager.fire("on_train_start", context)
        loop = hooks.events[0][1]
        assert loop.position() == (6, 72)
        assert loop.numbers(context)[:5] == (7, True, 12, 96, 3)
        context.skipped_iter = True
        assert train_step(({}, 1, False, False, 0)) == ({}, 1, False, False, 0)
        assert loop.numbers(context)[:5] == (7, False, 12, 96, 3)
        train_step(({}, True, False, True, 17))
        assert loop.numbers(context) is None
        assert loop.numbers(context)[:5] == (7, False, 12, 96, 3)

    pretrain.train = body
    patched(modules, hooks)
    pretrain.train(pretrain.normalize_callbacks(None))
    assert [event[0] for event in hooks.events] == ["train_start", "train_end"]


def test_the_hosts_model_is_let_go_when_training_has_ended(modules, context):
    class Model:
        config = None

    hooks, kept = TrainingHooks(), []
    hooks.train_start = lambda loop: kept.append(loop.say)  # as a session does, until its summary is written
    modules[0].train = lambda manager: manager.fire("on_train_start", context)
    patched(modules, hooks)
    context.model = [Model()]
    gone = weakref.ref(context.model[0])
    manager = modules[0].normalize_callbacks([])
    modules[0].train(manager)
    assert len(kept) == 1
    context.model = None
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "dataset",
    [
        {"dataloader_type": "batch"},
        {"enable_in_batch_packing": True},
        {"packed_sequence_specs": SimpleNamespace(packed_sequence_size=64)},
    ],
)
def test_batches_of_varying_length_have_no_flops_where_the_host_does_not_say_the_lengths(
    modules, context, dataset
):
    vars(context.state.cfg.dataset).update(dataset)
    lengths = vars(modules[1]).pop(bridge.LENGTHS)
    with pytest.raises(PerfError, match="its sequences differ in length, which this Bridge does not say"):
        bridge.BridgeLoop(context, modules[1], False).model_args()
    setattr(modules[1], bridge.LENGTHS, lengths)
    with pytest.raises(PerfError, match="not a GPTModel"):  # the lengths are no reason any more
        bridge.BridgeLoop(context, modules[1], False).model_args()


def test_packing_that_is_not_switched_on_is_none(modules, context):
    context.state.cfg.dataset.packed_sequence_specs = SimpleNamespace(packed_sequence_size=-1)
    assert not bridge.BridgeLoop(context, modules[1], False).varies


@pytest.mark.parametrize(
    ("ranks", "reduced", "sums", "known"),
    [
        (2, True, (90, 700, 0), (90, 700)),
        (2, True, (96, 700, 0), (96, 700)),
        (2, False, (90, 700, 0), None),  # the other rank's are taken for this one's
        (1, False, (40, 300, 0), (40, 300)),
        (1, False, (48, 384, 0), None),  # every sequence is taken for seq_length long
        (2, True, (None, None, 0), None),
    ],
)
def test_only_true_lengths_count(modules, context, ranks, reduced, sums, known):
    context.state._flops_requires_global_reduce, context.state.cfg.data_parallel_size = reduced, ranks
    assert bridge.BridgeLoop(context, modules[1], False).lengths(sums) == known


def test_a_step_has_flops_where_the_host_has_said_its_lengths(modules, context):
    hooks, (pretrain, train) = RecordingHooks(), modules
    context.state.cfg.dataset.enable_offline_packing = True
    setattr(train, bridge.LENGTHS, lambda state, **_: (90, 700, 0, None, None))

    def body(manager):
        manager.fire("on_train_start", context)
        manager.fire("on_train_step_end", context)
        assert getattr(train, bridge.LENGTHS)(context.state, data_parallel_size=2)[0] == 90

    pretrain.train = body
    patched(modules, hooks)
    pretrain.train(pretrain.normalize_callbacks(None))
    assert [event for event in hooks.events if event[0] == "packed"] == [
        ("packed", None),
        ("packed", (90, 700)),
    ]


def test_waits_for_checkpoints_are_found_as_a_method_of_what_train_is_given(
    modules, context, tmp_path, monkeypatch
):
    hooks, (pretrain, train) = RecordingHooks(), modules
    (tmp_path / "train.py").write_text(
        "def train(manager, checkpoint_manager):\n    checkpoint_manager.finalize_async_saves(True)\n"
    )
    train.__file__ = str(tmp_path / "train.py")
    del train.maybe_finalize_async_save

    class Manager:
        def finalize_async_saves(self, blocking):
            return blocking

    def body(manager, checkpoint_manager):
        manager.fire("on_train_start", context)
        assert checkpoint_manager.finalize_async_saves(blocking=True) is True

    pretrain.train, own = body, Manager()
    patched(modules, hooks)
    pretrain.train(pretrain.normalize_callbacks(None), checkpoint_manager=own)
    assert [event for event in hooks.events if event[0] in ("pause", "resume")] == [
        ("pause", "checkpoint"),
        ("resume", "checkpoint"),
    ]
    assert vars(own) == {}


def test_the_other_functions_tell_their_events_in_a_training_and_are_the_hosts_own_after_it(modules, context):
    hooks, (pretrain, train) = RecordingHooks(), modules
    before = dict(vars(train))
    told = (
        "evaluate_and_print_results",
        "save_checkpoint_and_time",
        "maybe_finalize_async_save",
        "_delete_cuda_graphs",
        "_dummy_train_step",
    )

    def body(*args, manager):
        manager.fire("on_train_start", context)
        for name in told:
            assert getattr(train, name)(1, two=2) == (name, (1,), {"two": 2})
        return args

    pretrain.train = body
    patches = patched(modules, hooks)
    assert vars(train) == before
    assert pretrain.train(1, manager=pretrain.normalize_callbacks(None)) == (1,)
    assert vars(train) == before
    assert [event[:2] for event in hooks.events[1:-2]] == [
        ("pause", "eval"),
        ("resume", "eval"),
        ("pause", "checkpoint"),
        ("resume", "checkpoint"),
        ("pause", "checkpoint"),
        ("resume", "checkpoint"),
        ("loop_left",),
    ]
    assert [event[0] for event in hooks.events[-2:]] == ["data_skipped", "train_end"]
    patches.undo()
    assert pretrain.normalize_callbacks is normalize


def test_a_bridge_without_callbacks_is_left_alone(modules):
    del modules[0].normalize_callbacks
    before = dict(vars(modules[1]))
    patched(modules, RecordingHooks())
    assert vars(modules[1]) == before


def test_settings_have_their_section_before_their_name_and_secrets_are_masked():
    @dataclass
    class Section:
        num_workers: int = 2
        wandb_api_key: str = "abc"
        _own: int = 1

    others = {"data_parallel_size": 2, "mixed_precision": "bf16_mixed", "comm_overlap": None}
    found = bridge.settings_of(SimpleNamespace(dataset=Section(), **others))
    assert found == others | {"dataset.num_workers": 2, "dataset.wandb_api_key": "***"}
