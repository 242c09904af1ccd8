"""What is found in trees of source that are only read."""

import pytest

from flagscale_perf.hosts import bridge, doctor
from flagscale_perf.hosts.core_loop import GPT_MODULE


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes modules below a directory that is all there is to import from."""
    monkeypatch.setattr(doctor.sys, "path", [str(tmp_path)])
    monkeypatch.setattr(doctor, "_flagscale_roots", lambda: [])

    def write(module, text):
        path = tmp_path.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    return write


def test_nothing_is_no_host(tree):
    assert doctor.find_hosts() == []


def test_bridge_and_plain_core_and_what_they_offer(tree):
    version = "MAJOR = 0\nMINOR = 3\nPATCH = 1\n"
    tree("megatron.bridge.package_info", version)
    tree(bridge.PRETRAIN_MODULE, "from x import normalize_callbacks, train")
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


def test_a_bridge_before_callbacks_does_not_work(tree):
    tree(bridge.PRETRAIN_MODULE, "from x import train")
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
