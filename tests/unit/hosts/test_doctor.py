"""What is found in trees of source that are only read."""

import importlib.util
import sys
import typing

import pytest
import torch

from flagscale_perf.hosts import bridge, doctor
from flagscale_perf.hosts.core_loop import GPT_MODULE
from flagscale_perf.hosts.hook_points import source_of

LOOP = """
from megatron.training import saving
from megatron.training.evaluation import evaluate_and_print_results as evaluate

def train(model, manager, args):
    if args.extra_eval_interval:
        from .extra import extra_evaluate_and_print_results
        extra_evaluate_and_print_results()
    saving.save_checkpoint_and_time()
    manager.finalize_async_saves()

def train_step(): pass
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes modules below a directory that is all there is to import from."""
    monkeypatch.setattr(doctor.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(doctor, "_flagscale_roots", lambda: [])

    def write(module, text):
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        source_of.cache_clear()

    return write


def test_nothing_is_no_host(tree):
    assert doctor.find_hosts() == []


def test_bridge_and_plain_core_and_what_they_offer(tree):
    version = "MAJOR = 0\nMINOR = 3\nPATCH = 1\n"
    tree("megatron.bridge.package_info", version)
    tree(bridge.PRETRAIN_MODULE, "def normalize_callbacks(): pass\ndef train(): pass")
    tree(bridge.LOOP_MODULE, "def train_step(): pass\ndef save_checkpoint_and_time(): pass")
    tree(GPT_MODULE, "class GPTModel: pass")
    found, core = doctor.find_hosts()
    assert (found.name, found.loop, found.works) == ("Megatron-Bridge 0.3.1", bridge.LOOP_MODULE, True)
    assert [point.name for point in found.points if not point.found] == [
        "train.evaluate_and_print_results",
        "train.logical_and_across_model_parallel_group",
        "train.maybe_finalize_async_save",
        "train._delete_cuda_graphs",
        "train._dummy_train_step",
    ]
    assert (core.name, core.loop, core.works) == ("Megatron-Core ?.?.?", doctor.OWN_LOOP, True)
    assert [(point.name, point.found) for point in core.points] == [(f"{GPT_MODULE}.GPTModel", True)]


def test_a_point_is_found_where_the_host_has_it_and_one_without_its_option_is_not_asked_for(tree):
    tree("megatron.training.training", LOOP)
    tree("megatron.training.extra", "def extra_evaluate_and_print_results(): pass")
    tree("megatron.training.saving", "def save_checkpoint_and_time(): pass")
    tree("megatron.training.evaluation.__init__", "def evaluate_and_print_results(): pass")
    (host,) = doctor.find_hosts()
    points = {point.name: point.found for point in host.points}
    for name in (
        "megatron.training.extra.extra_evaluate_and_print_results",
        "megatron.training.saving.save_checkpoint_and_time",
        "evaluate",
        "manager.finalize_async_saves",
    ):
        assert points[name], name
    assert points["build_extra_valid_data_iterators"] is points["training_log"] is False
    tree("megatron.training.training", "def train(): pass\ndef train_step(): pass")
    (host,) = doctor.find_hosts()
    assert not any("extra" in point.name for point in host.points)


def test_what_bridge_has_that_is_not_recorded_is_named(tree):
    tree(bridge.PRETRAIN_MODULE, "def normalize_callbacks(): pass\ndef train(): pass")
    tree(bridge.LOOP_MODULE, "def train_step(): pass")
    tree("megatron.bridge.training.pretrain_megatron_mimo", "def pretrain_megatron_mimo(): pass")
    (host,) = doctor.find_hosts()
    assert host.remarks == ("pretrain_megatron_mimo has a loop of its own: nothing of it is recorded",)


def test_a_phase_whose_method_is_gone_is_missing(tree):
    tree("megatron.training.training", "def train(): pass\ndef train_step(): pass")
    tree("megatron.core.rerun_state_machine", "class RerunStateMachine:\n    pass")
    (host,) = doctor.find_hosts()
    (gone,) = [point for point in host.points if "RerunStateMachine" in point.name]
    assert (gone.found, gone.cost) == (False, "the phase exposed_stat_comm (it counts to other)")


def test_a_host_that_cannot_be_imported_is_not_ready(tree, monkeypatch):
    tree(
        "megatron.training.training",
        "from megatron.core import kernels\ndef train(): pass\ndef train_step(): pass",
    )
    tree("megatron.core.kernels", "try:\n    import no_such_a\nexcept ImportError: pass\nimport os.path\n")
    (host,) = doctor.find_hosts()
    assert host.works and host.lacks == ()
    tree("megatron.core.kernels", "from . import deep")
    tree("megatron.core.deep", "import no_such_b.sub\nfrom no_such_b import thing")
    (host,) = doctor.find_hosts()
    (lack,) = host.lacks
    assert lack.text == "megatron.core.deep imports no_such_b, which is not installed: install it"
    assert (host.works, host.is_known, lack.is_lent) == (False, True, False)


def test_what_a_rehearsal_stands_in_for_does_not_keep_a_host_from_working_there(tree, monkeypatch):
    monkeypatch.delattr(typing, "override", raising=False)
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *_: None if name == "triton" else find_spec(name)
    )
    tree(GPT_MODULE, "import triton\nfrom typing import Any, override\nclass GPTModel: pass")
    (host,) = doctor.find_hosts()
    assert [lack.is_lent for lack in host.lacks] == [True, True] and host.works
    assert host.lacks[1].text.startswith(f"{GPT_MODULE} imports override from typing, which Python 3.")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)  # nothing is rehearsed on a GPU
    assert_lacks_keep_it_from_working()
    monkeypatch.setenv("FLAGSCALE_PERF_REHEARSE_ON_CPU", "always")
    (host,) = doctor.find_hosts()
    assert host.works
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("FLAGSCALE_PERF_REHEARSE_ON_CPU", "never")
    assert_lacks_keep_it_from_working()


def assert_lacks_keep_it_from_working():
    (host,) = doctor.find_hosts()
    assert [lack.is_lent for lack in host.lacks] == [False, False] and not host.works
    assert host.lacks[0].text == f"{GPT_MODULE} imports triton, which is not installed: install it"
    assert host.lacks[1].text.endswith("does not have: take a newer Python")


def test_the_commit_of_the_hosts_own_tree_is_named_and_no_other(tree, tmp_path):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("d48bd6be0" + "0" * 31)
    tree("megatron.training.training", "def train(): pass\ndef train_step(): pass")
    (host,) = doctor.find_hosts()
    assert host.commit == "d48bd6b"
    installed = tmp_path / "site-packages"
    doctor.sys.path[:] = [str(installed)]
    tree("site-packages.megatron.training.training", "def train(): pass\ndef train_step(): pass")
    (host,) = doctor.find_hosts()
    assert host.commit is None


def test_a_bridge_before_callbacks_does_not_work(tree):
    tree(bridge.PRETRAIN_MODULE, "def train(): pass")
    tree(bridge.LOOP_MODULE, "def train_step(): pass")
    (host,) = doctor.find_hosts()
    assert not host.works


def test_a_megatron_loop_needs_its_required_functions(tree):
    tree("megatron.training.training", "def train(): pass")
    (host,) = doctor.find_hosts()
    assert (host.name, host.works, host.remarks) == ("Megatron-LM (core unknown)", False, ())


def test_a_tree_of_flagscale_hides_an_installed_one_and_says_what_else_measures(tree, tmp_path, monkeypatch):
    installed = tmp_path / "site" / "flag_scale"
    (installed / "flagscale" / "train").mkdir(parents=True)
    (installed / "flagscale" / "train" / "train.py").write_text("def train(): pass\ndef train_step(): pass")
    monkeypatch.setattr(doctor, "_flagscale_roots", lambda: [installed])
    monkeypatch.setattr(doctor.sys, "path", [str(tmp_path), str(tmp_path / "flagscale" / "train")])
    tree("flagscale.__init__", "")
    tree("flagscale.train.perf_monitor.hooks", "")
    tree("flagscale.runner.straggler.detector", "")
    tree("flagscale.train.megatron.training.training", "def train(): pass\ndef train_step(): pass")
    tree("megatron.core.package_info", "MAJOR = 0\nMINOR = 17\nPATCH = 1\n")
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "1.0.0"\n')
    (host,) = doctor.find_hosts()
    assert (host.name, host.loop) == ("FlagScale 1.0.0 (core 0.17.1)", "megatron.training.training")
    assert host.works
    monitor, straggler = host.remarks
    assert "--perf-host-monitor keep" in monitor
    assert "--enable-straggler-detection" in straggler and "all_gather" in straggler
