"""A vision tower, its projector, and the decoder that reads both. f = the tower's hidden size."""

from __future__ import annotations

from flagscale_perf.flops.families.decoder import decoder
from flagscale_perf.flops.tape import Tape, Weight, needed
from flagscale_perf.flops.tower_units import Patch, PatchPair
from flagscale_perf.flops.towers import Vision


def vision_language(tape: Tape) -> None:
    """Qwen2.5-VL (arXiv:2502.13923), LLaVA (arXiv:2310.03744): the projected patches replace placeholders.

    Qwen3-VL adds those of layers within the tower to what the decoder's first layers give (DeepStack,
    arXiv:2406.04334).
    """
    tower = needed(tape.shape.vision, "a vision tower; give vision_config")
    seen = _projected(tape, tower)
    decoder(tape, seen=seen and tower.images != ())


def _projected(tape: Tape, tower: Vision) -> bool:
    """Tower and projector; returns whether a gradient flows through their output."""
    extra, seen = int(tower.class_token), False
    with tape.stream("vision_", Patch(extra=extra), PatchPair(extra)):
        with tape.layer("vision"):
            x = _embedded_patches(tape, tower)
        for layer in range(tower.layers):
            repeated = bool(tower.repeated) and tower.repeated[layer]
            with tape.layer("vision", repeated=repeated, used=layer < tower.used_layers):
                y = _layer(tape, tower, layer, x)
            x = y if layer < tower.used_layers else x
            if layer in tower.deepstack:
                with tape.layer("projector"):
                    seen |= _projector(tape, tower, x, tower.projector_inputs)
        with tape.layer("projector"):
            return _projector(tape, tower, x, tower.hidden) or seen


def _embedded_patches(tape: Tape, tower: Vision) -> bool:
    # The patches' kernel is as large as its stride, so it is a matrix. Pixels need no gradient.
    tape.parameters += tower.hidden * (tower.positions + tower.class_token)
    tape.parameters += tower.hidden * tower.outer_norms * (2 if tower.norm_bias else 1)
    patches = Weight("patch_embed", tower.patch_inputs, tower.hidden, bias=tower.patch_bias, unit=Patch())
    return tape.linear(patches, False)


def _layer(tape: Tape, tower: Vision, layer: int, x: bool) -> bool:
    f, bias = tower.hidden, tower.bias
    y = tape.norm(x, f, tower.norm_bias)
    y = tape.linear(Weight("qkv_proj", f, 3 * f, bias=bias), y)
    window = 0 if tower.sees_whole_frames(layer) else tower.window
    with tape.recomputed("core_attn"):
        y = tape.attention(y, y, y, PatchPair(int(tower.class_token), window, tower.merge), (f, f))
    x = tape.linear(Weight("out_proj", f, f, bias=bias), y) or x
    y = tape.norm(x, f, tower.norm_bias)
    with tape.recomputed("mlp"):
        up = tape.linear(Weight("mlp", f, tower.ffn * (2 if tower.gated else 1), bias=bias), y)
        return tape.linear(Weight("mlp", tower.ffn, f, bias=bias), up) or x


def _projector(tape: Tape, tower: Vision, x: bool, norm: int) -> bool:
    # `norm`: width of the norm, which stands before patches are merged, or behind.
    # mlp.0 and mlp.2, linear_1 and linear_2. A norm before them gives the first one's input a gradient.
    component = "merger" if tower.merge > 1 else "projector"
    unit = Patch(tower.merge, int(tower.projects_class))
    if tower.projector_norm:
        x = tape.norm(x, norm, tower.norm_bias)
    widths = tower.projector_inputs, tower.projector_inner, tape.shape.hidden
    for n_in, n_out in zip(widths, widths[1:], strict=False):
        x = tape.linear(Weight(component, n_in, n_out, bias=tower.projector_bias, unit=unit), x)
    return x
