"""Sizes of what accompanies a decoder: vision tower and projector, an encoder, BERT's heads."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class Vision:
    """A vision transformer, and the projector from its patches to tokens of the decoder.

    Attributes:
        layers, hidden, heads, ffn: as in `Shape`.
        gated: its feed-forward blocks have three matrices.
        patch_inputs: numbers in one patch: channels x frames x height x width.
        projector_inner: inner width of the projector's two layers.
        merge: patches along each side of an image that become one token.
        window: side of the windows that attention stays within, in tokens; 0 for whole frames.
        whole_frames: for every layer, whether it sees whole frames all the same; empty for yes.
        used: after how many layers the outputs are taken; the projector gets these side by side.
        class_token: beside the patches of every frame.
        projects_class: the projector gets the class token, too.
        deepstack: layers whose outputs are merged by projectors of their own, for the decoder's first layers.
        repeated: for every layer, whether it is recomputed; empty for no.
        images: of a step: frames, and patches along the height and the width of each; None if unknown.
        bias, patch_bias, projector_bias, norm_bias, projector_norm, outer_norms, positions:
            matter for the number of parameters only, and projector_norm starts a gradient.
    """

    layers: int
    hidden: int
    heads: int
    ffn: int
    gated: bool
    patch_inputs: int
    projector_inner: int
    merge: int = 1
    window: int = 0
    whole_frames: tuple[bool, ...] = ()
    used: tuple[int, ...] = ()
    class_token: bool = False
    projects_class: bool = False
    deepstack: tuple[int, ...] = ()
    repeated: tuple[bool, ...] = ()
    images: tuple[tuple[int, int, int], ...] | None = None
    bias: bool = True
    patch_bias: bool = False
    projector_bias: bool = True
    norm_bias: bool = False
    projector_norm: bool = False
    outer_norms: int = 0
    positions: int = 0

    def __post_init__(self) -> None:
        """Refuses impossible towers. Raises PerfError."""
        if self.hidden % self.heads:
            raise PerfError(
                f"vision_config: hidden_size {self.hidden} is not a multiple of its {self.heads} heads; "
                "change one"
            )
        if any(not 0 <= after <= self.layers for after in self.used):
            raise PerfError(
                f"vision_config: the outputs after {self.used} layers are used, there are {self.layers}; "
                "give vision_feature_layer within them"
            )

        for frames, height, width in self.images or ():
            if min(frames, height, width) < 1 or height % self.merge or width % self.merge:
                raise PerfError(
                    f"model: image_grids has {frames},{height},{width}; give frames and two numbers of "
                    f"patches, both multiples of {self.merge}"
                )

    def step_images(self) -> tuple[tuple[int, int, int], ...]:
        """The images of a step. Raises PerfError if they are unknown."""
        if self.images is None:
            raise PerfError(
                "model: it has a vision tower, and image_grids is missing, the patches of the step's images; "
                "add it (--image-grids 't,h,w;t,h,w', or none)"
            )
        return self.images

    def step_tokens(self) -> int:
        """Number of decoder tokens that the images of a step replace. Raises PerfError."""
        return sum(
            frames * (height * width // self.merge**2 + self.projects_class)
            for frames, height, width in self.step_images()
        )

    @property
    def used_layers(self) -> int:
        """Number of layers that a gradient comes back through."""
        return max(self.used, default=self.layers)

    @property
    def projector_inputs(self) -> int:
        """Width of the projector's input."""
        return self.hidden * self.merge**2 * max(1, len(self.used))

    def sees_whole_frames(self, layer: int) -> bool:
        """Whether attention in this layer has no windows."""
        return not self.window or not self.whole_frames or self.whole_frames[layer]


@dataclass(frozen=True)
class Encoder:
    """The encoder of an encoder-decoder model, as wide as its decoder.

    Attributes:
        layers: of the encoder; those of the decoder are the shape's.
        decoder_seq_length: tokens of the decoder's sequence, where the source says it.
        repeated: for every encoder layer, whether it is recomputed; empty for no.
        position_buckets: of the position bias that each of the two stacks has.
        output_bias: the output layer has a bias; this and the one before are for the number of parameters.
    """

    layers: int
    decoder_seq_length: int | None = None
    repeated: tuple[bool, ...] = ()
    position_buckets: int = 0
    output_bias: bool = False

    def decoder_length(self) -> int:
        """Tokens of the decoder's sequence. Raises PerfError if unknown."""
        if self.decoder_seq_length is None:
            raise PerfError(
                "model: it has an encoder and a decoder, and decoder_seq_length is missing; "
                "add it (--decoder-seq-length)"
            )
        return self.decoder_seq_length


@dataclass(frozen=True)
class BertHeads:
    """The parts that make an encoder a BERT.

    Attributes:
        next_sentence: pooler and the head that tells whether the second sentence follows the first.
        post_norm: norms stand behind attention and feed-forward blocks, not before them.
        token_types: rows of the embedding of sentences; for the number of parameters only.
    """

    next_sentence: bool = True
    post_norm: bool = True
    token_types: int = 2
