"""Megatron's `pretrain_t5.py` and `pretrain_bert.py` on a small corpus: what their steps multiply, part by
part, is what the formulas and the monitor's records say.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from flagscale_perf.flops_calculator import ModelShape
from tests.oracle.real_steps import MONITOR, assert_recorded, expected, flags, megatron_path, train_megatron
from tests.processes import flagscale as fs

pytestmark = [pytest.mark.host, pytest.mark.oracle]

STEPS, BATCH, LENGTH, WORDS = 2, 4, 64, 305
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "seq_length": LENGTH}
# Its decoder has as many layers as its encoder, whatever is said of it.
T5 = {
    "encoder_num_layers": 3,
    "decoder_num_layers": 2,
    "encoder_seq_length": LENGTH,
    "decoder_seq_length": 40,
    "vocab_extra_ids": 100,
}
SCRIPTS = {
    "pretrain_t5.py": (T5, {"num_layers": 3, "vocab_size": WORDS + 100 + 2}),
    "pretrain_bert.py": ({"num_layers": 2, "spec": "local"}, {"vocab_size": WORDS}),
}
# Of FlagScale's small model: its data, its tokenizer and what these scripts call otherwise.
OTHERS = {"--mock-data": 1, "--tokenizer-type": 2, "--vocab-size": 2, "--num-layers": 2}


def words_of(script: str, args: dict, corpus: Path) -> list:
    words = list(fs.TINY)
    for flag, number in (OTHERS | ({"--seq-length": 2} if args is T5 else {})).items():
        place = words.index(flag)
        del words[place : place + number]
    data = {"data_path": corpus / "corpus", "vocab_file": corpus / "vocabulary.txt", "split": "1000,0,0"}
    tokenizer = ["--tokenizer-type", "BertWordPieceCase", "--legacy-tokenizer"]
    return [*words, *flags(args | data), *tokenizer, "--train-iters", STEPS]


@pytest.mark.parametrize("script", SCRIPTS)
def test_steps_multiply_what_the_formulas_say(script, tmp_path):
    made = fs.run(
        [sys.executable, str(Path(__file__).with_name("small_corpus.py")), str(tmp_path)],
        tmp_path,
        PYTHONPATH=megatron_path(),
    )
    assert made.returncode == 0, made.output[-2000:]
    args, parsed = SCRIPTS[script]
    counts = {}
    for name, monitor in {"off": [], "on": MONITOR}.items():
        (tmp_path / name).mkdir()
        counts[name] = train_megatron(tmp_path / name, script, [*words_of(script, args, tmp_path), *monitor])
    losses = [fs.host_losses(tmp_path / name / "tb") for name in counts]
    assert losses[0] == losses[1] and len(losses[0]) == STEPS
    shape = ModelShape.from_args(SIZES | args | parsed | {"tokenizer_type": "BertWordPieceCase"})
    assert counts["on"] == counts["off"] == [expected(shape, BATCH, LENGTH)] * STEPS
    assert_recorded(tmp_path / "on", shape, BATCH, LENGTH)
