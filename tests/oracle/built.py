"""What transformers builds of each config.json: one JSON list of configs in, one of facts out.

Its own process: `python -m tests.oracle.built`. Weights, layers of experts, and the pairs of a sequence of
`LENGTH` tokens that each layer's softmax gives any weight.
"""

from __future__ import annotations

import json
import sys
import warnings
from typing import Any

import torch
import transformers

from tests.oracle.transformers_counter import model_of

LENGTH = 12


def facts(content: dict[str, Any]) -> dict[str, Any]:
    """Of the model, and the config as transformers would write it."""
    model = model_of(content).eval()
    decoder = model.get_decoder()
    layers = getattr(decoder, "layers", None) or decoder.h
    given = torch.randint(5, 50, (1, LENGTH))
    with torch.no_grad():
        seen = decoder(input_ids=given, output_attentions=True, use_cache=False).attentions or ()
    return {
        "parameters": sum(each.numel() for each in model.parameters()),
        "mixtures": [any("experts" in name for name, _ in layer.named_modules()) for layer in layers],
        "pairs": [int((each[0, 0] > 0).sum()) for each in seen if each is not None],
        "written": json.loads(model.config.to_json_string(use_diff=False)),
    }


def main() -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    json.dump([facts(content) for content in json.load(sys.stdin)], sys.stdout)


if __name__ == "__main__":
    main()
