"""Writes 200 documents of token ids for Megatron-Core's datasets: `documents.py PREFIX`."""

import sys

import torch
from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

DOCUMENTS, VOCABULARY = 200, 4096

if __name__ == "__main__":
    torch.manual_seed(1)
    builder = IndexedDatasetBuilder(f"{sys.argv[1]}.bin", dtype=DType.optimal_dtype(VOCABULARY))
    for number in range(DOCUMENTS):
        length = 40 + number % 60
        builder.add_document(torch.randint(0, VOCABULARY, (length,)), [length])
    builder.finalize(f"{sys.argv[1]}.idx")
