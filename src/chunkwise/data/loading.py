"""From manifest entries to batches: decoding, one change of rate, tokens, and what happens to bad audio."""

from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from lhotse import CutSet, Recording
from lhotse.audio.utils import AudioLoadingError, DurationMismatchError
from lhotse.augmentation import AudioTransform, Resample
from lhotse.cut import Cut, MixedCut, MonoCut, MultiCut
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from chunkwise.audio.reading import AudioError, EmptyAudioError, audio_info
from chunkwise.audio.resampling import convolutions_of_any_length
from chunkwise.data.batches import Batch, Utterance, collate, silent_batch
from chunkwise.data.skips import Skip
from chunkwise.text.normalisation import normalise
from chunkwise.text.tokenizer import Tokenizer
from chunkwise.typing import Seconds

TOLERANCE_S = 0.025
"""How far a file may differ from its manifest: lossy formats do not know their length to the sample."""


class BadAudio(StrEnum):
    """What happens to audio that cannot be used."""

    skip = "skip"  # training: leave the utterance out and say so in `Batch.skipped`
    refuse = "refuse"  # evaluation: an error; but an empty file is kept as an utterance without a sample


class SpeechDataset(Dataset[Batch]):
    """Batches of speech, indexed by the cuts that they are made of."""

    def __init__(self, tokenizer: Tokenizer, sample_rate_hz: int, bad_audio: BadAudio) -> None:
        self.tokenizer = tokenizer
        self.sample_rate_hz = sample_rate_hz
        self.bad_audio = bad_audio

    def __getitem__(self, cuts: CutSet) -> Batch:
        """The batch of these cuts, in their order."""
        utterances: list[Utterance] = []
        skipped: list[Skip] = []
        for cut in listed(cuts):
            try:
                utterances.append(self._utterance(cut))
            except AudioError as error:
                if self.bad_audio is BadAudio.refuse:
                    raise AudioError(f"utterance {cut.id}: {error}") from error
                skipped.append(Skip(cut.id, str(error)))
        return collate(utterances, skipped) if utterances else silent_batch(self.sample_rate_hz, skipped)

    def _utterance(self, cut: Cut) -> Utterance:
        text = transcript(cut)
        try:
            waveform = load_waveform(cut, self.sample_rate_hz)
        except EmptyAudioError:
            if self.bad_audio is BadAudio.skip:
                raise
            waveform = torch.zeros(0)
        return Utterance(cut.id, text, waveform, self.tokenizer.encode(text))


def listed(cuts: CutSet | Iterable[Cut]) -> list[Cut]:
    """The cuts themselves (a `CutSet` is not typed as something to iterate over)."""
    return list(cast(Iterable[Cut], cuts))


def transcript(cut: Cut) -> str:
    """The normalised text of a cut: its supervisions in the order of time."""
    if not cut.supervisions:
        raise ValueError(f"utterance {cut.id} has no transcript; prepare the corpus again")
    ordered = sorted(cut.supervisions, key=lambda supervision: supervision.start)
    return normalise(" ".join(supervision.text or "" for supervision in ordered))


def speaker(cut: Cut) -> str | None:
    """Who speaks in a cut; `None` where the corpus does not say, or names several."""
    names = {supervision.speaker for supervision in cut.supervisions}
    return names.pop() if len(names) == 1 else None


def load_waveform(cut: Cut, sample_rate_hz: int) -> Float[Tensor, " samples"]:
    """The samples of a cut: channels averaged, perturbed as its manifest says, at `sample_rate_hz`.

    Whatever is wrong with the audio is an `AudioError` with the file's name.
    """
    names = ", ".join(_checked_source(recording) for recording in _recordings(cut))
    if cut.sampling_rate != sample_rate_hz:
        cut = cut.resample(sample_rate_hz)
    try:
        with convolutions_of_any_length():
            samples = cut.load_audio()
    except (AudioLoadingError, DurationMismatchError, OSError, RuntimeError, AssertionError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(". ")
        problem = f"does not hold what its manifest says ({reason})"
        raise AudioError(names, problem, "prepare the corpus again") from error
    assert samples is not None  # every cut has a recording
    if not np.isfinite(samples).all():
        raise AudioError(names, "has non-finite samples", "write the file again")
    return torch.from_numpy(np.ascontiguousarray(samples.mean(axis=0) if len(samples) > 1 else samples[0]))


def _recordings(cut: Cut) -> Iterator[Recording]:
    match cut:
        case MixedCut():
            for track in cut.tracks:
                yield from _recordings(track.cut)
        case MonoCut() | MultiCut():
            if cut.recording is None:
                raise AudioError(f"utterance {cut.id}", "has no recording", "prepare the corpus again")
            yield cut.recording


def _checked_source(recording: Recording) -> str:
    """The name of a recording's file, after a look at its header.

    lhotse would take the manifest's word for the rate, and mirror up to half a second of missing audio.
    """
    rate_hz, duration_s = _stored(recording)
    paths = [str(source.source) for source in recording.sources if source.type == "file"]
    for path in paths:
        info = audio_info(path)
        if info.num_samples == 0:
            raise EmptyAudioError(path, "has no samples", "copy or download it again")
        if info.rate_hz != rate_hz:
            problem = f"has {info.rate_hz} Hz, but its manifest says {rate_hz} Hz"
            raise AudioError(path, problem, "prepare the corpus again")
        if info.num_samples is not None and abs(info.num_samples / rate_hz - duration_s) > TOLERANCE_S:
            problem = f"lasts {info.num_samples / rate_hz:.3f} s, but its manifest says {duration_s:.3f} s"
            raise AudioError(path, problem, "prepare the corpus again")
    return ", ".join(paths) or recording.id


def _stored(recording: Recording) -> tuple[int, Seconds]:
    """The rate and the duration of a recording's file, before the manifest's changes to it."""
    rate_hz, duration_s = recording.sampling_rate, recording.duration
    for transform in reversed(recording.transforms or []):
        step = transform if isinstance(transform, AudioTransform) else AudioTransform.from_dict(transform)
        _, before_s = step.reverse_timestamps(0.0, duration_s, rate_hz)
        duration_s = duration_s if before_s is None else before_s
        rate_hz = step.source_sampling_rate if isinstance(step, Resample) else rate_hz
    return rate_hz, duration_s


def load_batches(dataset: SpeechDataset, batches: Iterable[CutSet], num_workers: int = 0) -> Iterator[Batch]:
    """The given batches, once and in order, read ahead by `num_workers` processes of one thread each."""
    # A generator of its own, so that loading draws nothing from the global one.
    yield from DataLoader(
        dataset, batch_size=None, sampler=batches, num_workers=num_workers, generator=torch.Generator()
    )
