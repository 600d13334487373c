"""Streams of audio in pieces of any size, and their text so far; many streams advance in one batch."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from chunkwise.audio.fbank import Fbank, FbankState
from chunkwise.audio.resampling import Resampler, ResamplerState
from chunkwise.decoding.search import Search
from chunkwise.models.context import ChunkContext
from chunkwise.models.encoder_state import EncoderState, join_streams, split_streams
from chunkwise.models.normalisation import NormalisationState
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
    """What the parts of the path carry from piece to piece.

    `features`, normalised, wait for their chunk to be complete.
    """

    resampler: ResamplerState
    fbank: FbankState
    normalisation: NormalisationState
    features: Float[Tensor, "one frames mels"]
    encoder: EncoderState
    search: Any


class Session:
    """One stream: samples -> features -> encoder frames -> tokens, each part with its own carried state.

    A chunk is encoded and searched as soon as its audio is complete. In full context nothing is
    recognised before `finish`. The model is put into evaluation mode and may serve many sessions, which
    either run by themselves (`accept`, `finish`) or take audio only (`receive`, `end`) and are advanced
    together by `advance`.

    What is held is bounded by the context, however long the stream is: only the list of tokens grows, and
    with an unlimited left context the keys and values that it asks for.
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
        self.chunk_features = model.encoder.chunk_features(context)
        self.resampler = Resampler(sample_rate_hz, fbank.config.sample_rate_hz)
        self.reset()

    def reset(self) -> None:
        """Forget everything heard: the next piece begins a new utterance."""
        self.ended = False
        encoder = self.model.encoder.initial_state(1, self.context)
        self.state = SessionState(
            resampler=self.resampler.initial_state(1),
            fbank=self.fbank.initial_state(1),
            normalisation=self.model.normalisation.initial_state(1),
            features=encoder.pending,
            encoder=encoder,
            search=self.search.initial_state(1),
        )

    def accept(self, waveform: Float[Tensor, " samples"]) -> Transcript:
        """Take the next samples, in [-1, 1] and of any number, and return the text so far."""
        self.receive(waveform)
        while advance([self]):
            pass
        return self.result()

    def finish(self) -> Transcript:
        """End the utterance: run what every part still holds back, and return the final text."""
        self.end()
        while advance([self]):
            pass
        return self.result()

    @torch.inference_mode()
    def receive(self, waveform: Float[Tensor, " samples"]) -> None:
        """Take the next samples without recognising anything yet."""
        if self.ended:
            raise ValueError("the session is finished; call reset() before it accepts another utterance")
        if not torch.isfinite(waveform).all():
            raise ValueError("the piece of audio holds samples that are not finite; check its source")
        state = self.state
        samples, resampler = self.resampler.stream(waveform[None], state.resampler)
        features, fbank = self.fbank.stream(samples, state.fbank)
        self._keep(features, replace(state, resampler=resampler, fbank=fbank))

    @torch.inference_mode()
    def end(self) -> None:
        """Take note that no more samples come; a second call changes nothing."""
        if self.ended:
            return
        state = self.state
        samples, resampler = self.resampler.flush(state.resampler)
        features, fbank = self.fbank.stream(samples, state.fbank)
        tail, fbank = self.fbank.flush(fbank)
        self._keep(torch.cat((features, tail), dim=1), replace(state, resampler=resampler, fbank=fbank))
        self.ended = True

    def _keep(self, features: Float[Tensor, "one frames mels"], state: SessionState) -> None:
        """Normalise new features and let them wait for their chunk."""
        normalised, normalisation = self.model.normalisation.stream(features, state.normalisation)
        waiting = torch.cat((state.features, normalised), dim=1)
        self.state = replace(state, normalisation=normalisation, features=waiting)

    @property
    def ready(self) -> int:
        """How many feature frames the next chunk has; 0 while it is not complete."""
        frames = self.state.features.shape[1]
        if self.chunk_features is not None and frames >= self.chunk_features:
            return self.chunk_features
        return frames if self.ended else 0

    @property
    def finished(self) -> bool:
        """Whether the text is final."""
        return self.ended and self.ready == 0

    def result(self) -> Transcript:
        """The text so far; a partial result only ever grows by a suffix."""
        found = self.search.hypotheses(self.state.search)[0]
        decode = self.tokenizer.decode if self.finished else self.tokenizer.decode_partial
        return Transcript(decode(found.tokens), list(found.tokens), list(found.frames), self.finished)


@torch.inference_mode()
def advance(sessions: Sequence[Session]) -> list[Session]:
    """Run the next chunk of every session that has one, all in one batch; the sessions that moved.

    The sessions must share their model, search and context. They may be of any age, and those that
    ended may have a shorter last chunk.
    """
    moving = [session for session in sessions if session.ready]
    if not moving:
        return moving
    first = moving[0]
    for session in moving:
        if (session.model, session.search, session.context) != (first.model, first.search, first.context):
            raise ValueError("the sessions must share one model, search and context to advance in one batch")
    encoder, search = first.model.encoder, first.search
    lengths = [session.ready for session in moving]
    longest = max(lengths)
    features = torch.cat([
        pad(session.state.features[:, :length], (0, 0, 0, longest - length))
        for session, length in zip(moving, lengths, strict=True)
    ])  # fmt: skip
    short = None if min(lengths) == longest == first.chunk_features else lengths
    encoded, encoder_state = encoder.stream_chunk(features, short, join_streams([s.state.encoder for s in moving]))
    frames = encoder.output_lengths(torch.tensor(lengths, device=encoded.device))
    search_state = search.stream(encoded, frames, search.join([s.state.search for s in moving]))
    rows = zip(moving, lengths, split_streams(encoder_state), search.split(search_state), strict=True)
    for session, length, encoder_row, search_row in rows:
        rest = session.state.features[:, length:].clone()
        session.state = replace(session.state, features=rest, encoder=encoder_row, search=search_row)
    return moving
