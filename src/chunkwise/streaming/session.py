"""A stream of audio in pieces of any size, and its text so far."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from chunkwise.audio.fbank import Fbank, FbankState
from chunkwise.audio.resampling import Resampler, ResamplerState
from chunkwise.decoding.search import Search
from chunkwise.models.conformer import EncoderState
from chunkwise.models.context import ChunkContext
from chunkwise.models.transducer import Transducer
from chunkwise.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Transcript:
    """What has been recognised so far; `frames` are the encoder frames (40 ms) of the tokens' emissions."""

    text: str
    tokens: list[int]
    frames: list[int]
    final: bool


@dataclass(frozen=True, slots=True)
class SessionState:
    """What the parts of the path carry from piece to piece."""

    resampler: ResamplerState
    fbank: FbankState
    encoder: EncoderState
    search: Any


class Session:
    """One stream: samples -> features -> encoder frames -> tokens, each part with its own carried state.

    A chunk is encoded and searched as soon as its audio is complete. In full context nothing is
    recognised before `finish`. The model is put into evaluation mode and may serve many sessions.
    """

    def __init__(
        self,
        model: Transducer,
        fbank: Fbank,
        tokenizer: Tokenizer,
        search: Search,
        context: ChunkContext,
        sample_rate_hz: int,
    ) -> None:
        self.model = model.eval()
        self.fbank = fbank.eval()
        self.tokenizer = tokenizer
        self.search = search
        self.context = context
        self.resampler = Resampler(sample_rate_hz, fbank.config.sample_rate_hz)
        self.reset()

    def reset(self) -> None:
        """Forget everything heard: the next piece begins a new utterance."""
        self.finished = False
        self.state = SessionState(
            self.resampler.initial_state(1),
            self.fbank.initial_state(1),
            self.model.encoder.initial_state(1, self.context),
            self.search.initial_state(1),
        )

    @torch.inference_mode()
    def accept(self, waveform: Float[Tensor, " samples"]) -> Transcript:
        """Take the next samples, in [-1, 1] and of any number, and return the text so far."""
        if self.finished:
            raise ValueError("the session is finished; call reset() before it accepts another utterance")
        if not torch.isfinite(waveform).all():
            raise ValueError("the piece of audio holds samples that are not finite; check its source")
        state = self.state
        samples, resampler = self.resampler.stream(waveform[None], state.resampler)
        features, fbank = self.fbank.stream(samples, state.fbank)
        encoded, encoder = self.model.encoder.stream(self.model.normalisation.stream(features), state.encoder)
        self.state = SessionState(resampler, fbank, encoder, self._search(encoded))
        return self.result()

    @torch.inference_mode()
    def finish(self) -> Transcript:
        """End the utterance: run what every part still holds back, and return the final text."""
        if self.finished:
            return self.result()
        state, normalise = self.state, self.model.normalisation.stream
        samples, resampler = self.resampler.flush(state.resampler)
        features, fbank = self.fbank.stream(samples, state.fbank)
        tail, fbank = self.fbank.flush(fbank)
        encoded, encoder = self.model.encoder.stream(normalise(torch.cat((features, tail), dim=1)), state.encoder)
        last, encoder = self.model.encoder.flush(encoder)
        self.state = SessionState(resampler, fbank, encoder, self._search(torch.cat((encoded, last), dim=1)))
        self.finished = True
        return self.result()

    def result(self) -> Transcript:
        """The text so far; a partial result only ever grows by a suffix."""
        found = self.search.hypotheses(self.state.search)[0]
        decode = self.tokenizer.decode if self.finished else self.tokenizer.decode_partial
        return Transcript(decode(found.tokens), list(found.tokens), list(found.frames), self.finished)

    def _search(self, encoded: Float[Tensor, "one encoder_frames d_model"]) -> Any:
        if encoded.shape[1] == 0:
            return self.state.search
        lengths = torch.full((1,), encoded.shape[1], device=encoded.device)
        return self.search.stream(encoded, lengths, self.state.search)


def lookahead_samples(fbank: Fbank, context: ChunkContext) -> int | None:
    """The algorithmic look-ahead: samples after the start of a chunk that its first encoder frame needs.

    `None` in full context, where the whole utterance is needed. It is the chunk itself plus the half
    window of its last feature frame, which reaches past the chunk's end; subsampling adds nothing.
    """
    if context.chunk_frames is None:
        return None
    return context.chunk_frames * Transducer.frames_per_encoder_frame * fbank.stride + fbank.right


def lookahead_ms(fbank: Fbank, context: ChunkContext) -> float | None:
    """`lookahead_samples` in milliseconds."""
    samples = lookahead_samples(fbank, context)
    return None if samples is None else 1000.0 * samples / fbank.config.sample_rate_hz
