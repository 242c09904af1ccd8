"""Documents of sentences for Megatron's BERT and T5, and their vocabulary: `small_corpus.py OUT`."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

DOCUMENTS, SENTENCES, WORDS = 40, 6, 300
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def main() -> None:
    """OUT/vocabulary.txt, OUT/corpus.bin and OUT/corpus.idx."""
    out, source = Path(sys.argv[1]), random.Random(1)
    words = [*SPECIAL, *(f"word{number}" for number in range(WORDS))]
    (out / "vocabulary.txt").write_text("\n".join(words) + "\n")
    builder = IndexedDatasetBuilder(str(out / "corpus.bin"), dtype=numpy.int32)
    for _ in range(DOCUMENTS):
        for _ in range(SENTENCES):
            sentence = [source.randrange(len(SPECIAL), len(words)) for _ in range(source.randint(5, 20))]
            builder.add_item(torch.tensor(sentence, dtype=torch.int32))
        builder.end_document()
    builder.finalize(str(out / "corpus.idx"))


if __name__ == "__main__":
    main()
