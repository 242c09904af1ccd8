"""The units of encoders' and vision towers' costs. Only a decoder's pairs are causal."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.flops.shape import Shape
from flagscale_perf.flops.step import Measure
from flagscale_perf.flops.units import NotPerToken, double_visible


@dataclass(frozen=True)
class FullPair:
    """A query and a key of attention that sees the whole sequence, or document."""

    def doubled(self, measure: Measure) -> int:
        """All pairs, under every convention; of documents where these are known."""
        step = measure.step
        sequences, lengths = step.documents()
        if measure.convention == "full":
            sequences, lengths = step.num_sequences, (step.seq_length,)
        return 2 * sequences * sum(length * length for length in lengths)

    def slope(self, shape: Shape) -> tuple[int, int] | None:
        """The whole square counts."""
        return 0, 2


@dataclass(frozen=True)
class Sequence(NotPerToken):
    """A sequence, regardless of its length."""

    def doubled(self, measure: Measure) -> int:
        """Twice the number of sequences."""
        return 2 * measure.step.num_sequences


@dataclass(frozen=True)
class DecoderToken(NotPerToken):
    """A token of the decoder of an encoder-decoder model."""

    def doubled(self, measure: Measure) -> int:
        """Twice the tokens of all the decoder's sequences."""
        return 2 * measure.step.num_sequences * _decoder_length(measure)


@dataclass(frozen=True)
class DecoderPair(NotPerToken):
    """A query and a key of its causal attention."""

    def doubled(self, measure: Measure) -> int:
        """The convention decides which pairs count."""
        length, sequences = _decoder_length(measure), measure.step.num_sequences
        if measure.convention == "visible":
            return sequences * double_visible(length, -1)
        return sequences * length * length * (2 if measure.convention == "full" else 1)


@dataclass(frozen=True)
class CrossPair(NotPerToken):
    """A query of the decoder and a key of the encoder."""

    def doubled(self, measure: Measure) -> int:
        """All of them, under every convention."""
        step = measure.step
        return 2 * step.num_sequences * step.seq_length * _decoder_length(measure)


@dataclass(frozen=True)
class Patch(NotPerToken):
    """A patch of an image, or several that were merged.

    Attributes:
        merge: patches along each side that were.
        extra: class tokens of a frame.
    """

    merge: int = 1
    extra: int = 0

    def doubled(self, measure: Measure) -> int:
        """Over all frames of all images."""
        area = self.merge**2
        return 2 * sum(
            frames * (height * width // area + self.extra) for frames, height, width in _images(measure)
        )


@dataclass(frozen=True)
class PatchPair(NotPerToken):
    """A query and a key of a vision tower, where a frame sees nothing but itself.

    Attributes:
        extra: class tokens of a frame.
        window: side of the windows that attention stays within, in merged patches; 0 for whole frames.
        merge: patches along each side of a merged one.
    """

    extra: int = 0
    window: int = 0
    merge: int = 1

    def doubled(self, measure: Measure) -> int:
        """All pairs of each frame, or of each of its windows, which are smaller at the edges."""
        return 2 * sum(frames * self._of_frame(height, width) for frames, height, width in _images(measure))

    def _of_frame(self, height: int, width: int) -> int:
        if not self.window:
            return (height * width + self.extra) ** 2
        # A window of a x b merged patches has (a b m^2)^2 pairs: over all windows a product of two sums.
        sides = (self._squares(side // self.merge) for side in (height, width))
        return self.merge**4 * next(sides) * next(sides)

    def _squares(self, side: int) -> int:
        whole, rest = divmod(side, self.window)
        return whole * self.window**2 + rest**2


def _decoder_length(measure: Measure) -> int:
    encoder = measure.shape.encoder
    return 0 if encoder is None else encoder.decoder_length()


def _images(measure: Measure) -> tuple[tuple[int, int, int], ...]:
    vision = measure.shape.vision
    return () if vision is None else vision.step_images()


FULL_PAIR, SEQUENCE = FullPair(), Sequence()
DECODER_TOKEN, DECODER_PAIR, CROSS_PAIR = DecoderToken(), DecoderPair(), CrossPair()
