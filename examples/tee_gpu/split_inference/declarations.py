"""Which plaintext each method shows the GPU side. Nothing is masked: who controls that side reads
what is named here.
"""

from __future__ import annotations

from collections.abc import Iterable

REVEALS = {
    "Init": "nothing; the norms' weights and the rotary frequencies come from the GPU side",
    "Embedding": "the token ids: the text itself",
    "BatchLinear": "the input of the projections, so also Q, K, V, gate and up",
    "Matmul": "Q and K, then the attention probabilities and V",
    "MatmulLinear": "the attention probabilities and V, so also the attention's output",
    "Attention": "Q, K and V; scores and probabilities are made on the GPU side",
    "AttentionLinear": "Q, K and V; scores, probabilities and output are made on the GPU side",
    "MLP": "the input of the MLP, and all that is computed in it",
    "LMHead": "the last token's hidden state and its logits",
    "fused_layer": "everything: hidden state, norms, scores, softmax, residuals and the key-value cache are "
    "the GPU side's. This gives up the protection",
}


def declaration(methods: Iterable[str]) -> str:
    """The lines about these methods."""
    named = list(methods)
    lines = [f"  {method:<16} {REVEALS[method]}" for method in named]
    side = "GPU" if "fused_layer" in named else "protected"
    cache = f"The key-value cache is kept on the {side} side."
    return "\n".join(["Plaintext that the GPU side is shown:", *lines, cache])
