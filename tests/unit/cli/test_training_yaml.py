"""A training yaml with its Hydra defaults, as Hydra puts it together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from flagscale_perf.cli import main
from flagscale_perf.cli.training_yaml import read_training_yaml
from flagscale_perf.spine.errors import PerfError

REPO = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("directory", "name"),
    [("conf", "train"), ("conf/train", "7b_with_perf_monitor"), ("examples/aquila/conf", "train")],
)
def test_the_shipped_ones_are_what_hydra_makes_of_them(directory: str, name: str) -> None:
    with initialize_config_dir(str(REPO / directory), version_base=None):
        composed = OmegaConf.to_container(compose(name), resolve=False)
    made = read_training_yaml(REPO / directory / f"{name}.yaml")
    made.pop("hydra", None)
    assert made == composed


def test_the_flops_of_a_file_that_only_has_defaults_are_those_of_its_model(capsys) -> None:
    printed = []
    for name in ("7b", "7b_with_perf_monitor"):
        assert main(["flops", "--json", "--args", str(REPO / f"conf/train/{name}.yaml")]) == 0
        printed.append(json.loads(capsys.readouterr().out))
    assert printed[0] == printed[1]
    assert printed[0]["parameters"] == 7_296_258_048


@pytest.fixture
def write(tmp_path: Path):
    def files(**texts: str) -> Path:
        for name, text in texts.items():
            (tmp_path / f"{name}.yaml").write_text(text)
        return tmp_path / "a.yaml"

    return files


def test_what_comes_later_wins_and_sections_are_joined(write) -> None:
    base = "model: {num_layers: 2, hidden_size: 8}\nseed: 1"
    over = "model: {num_layers: 4}"
    assert read_training_yaml(write(base=base, a=f"defaults: [base]\n{over}")) == {
        "model": {"num_layers": 4, "hidden_size": 8}, "seed": 1,
    }  # fmt: skip
    own_first = read_training_yaml(write(base=base, a=f"defaults: [_self_, base]\n{over}"))
    assert own_first["model"]["num_layers"] == 2
    assert read_training_yaml(write(a="seed: 3\ndefaults:\n")) == {"seed": 3}


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"a": "defaults: [bsae]", "base": "x: 1"}, "which its defaults name; did you mean base"),
        ({"a": "defaults: [b]", "b": "defaults: [a]"}, "b.yaml: its defaults lead back to"),
        ({"a": "defaults: base"}, "defaults is 'base'; write a list of names"),
        ({"a": "defaults: ['${x}']"}, "is not followed here; write out what it adds"),
        ({"a": "defaults: [b]", "b": "["}, "b.yaml: is neither JSON nor yaml"),
        ({"a": "defaults: [b]", "b": "3"}, "b.yaml: holds no arguments but int"),
    ],
)
def test_what_cannot_be_put_together_is_said_by_its_file(write, texts, message: str) -> None:
    with pytest.raises(PerfError, match=message.replace("$", r"\$")):
        read_training_yaml(write(**texts))
