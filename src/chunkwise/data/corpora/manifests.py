"""Utterances as lhotse cuts: made from recordings, written to and read from a prepared folder."""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import soundfile
from jaxtyping import Float
from lhotse import AudioSource, CutSet, MonoCut, Recording, SupervisionSegment
from lhotse.cut.set import deserialize_cut
from lhotse.supervision import AlignmentItem
from torch import Tensor

from chunkwise.audio.reading import AudioError, EmptyAudioError, audio_info, read_audio
from chunkwise.data.skips import Skip

SAMPLE_RATE_HZ = 16_000
CHECKED_PER_SPLIT = 5_000
"""Reading a manifest compares this many recordings, spread evenly, with their files."""


def utterance(
    recording: Recording,
    text: str,
    speaker: str,
    words: Sequence[AlignmentItem] | None = None,
    custom: dict[str, float] | None = None,
) -> MonoCut:
    """A whole recording with its transcript."""
    supervision = SupervisionSegment(
        id=recording.id,
        recording_id=recording.id,
        start=0.0,
        duration=recording.duration,
        channel=0,
        text=text,
        language="English",
        speaker=speaker,
        custom=custom,
        alignment=None if words is None else {"word": list(words)},
    )
    return MonoCut(
        id=recording.id,
        start=0.0,
        duration=recording.duration,
        channel=0,
        supervisions=[supervision],
        recording=recording,
    )


def write_recording(folder: Path, split: str, name: str, waveform: Float[Tensor, " samples"]) -> Recording:
    """The waveform as a 16-bit FLAC file in the prepared folder; the manifest names it relative to that folder."""
    source = Path("audio", split, f"{name}.flac")
    path = folder / source
    path.parent.mkdir(parents=True, exist_ok=True)
    samples = (waveform.numpy() * 32768.0).round().clip(-32768, 32767).astype(np.int16)
    soundfile.write(path, samples, SAMPLE_RATE_HZ, format="FLAC", subtype="PCM_16")
    return _recording(name, source.as_posix(), 1, SAMPLE_RATE_HZ, len(samples))


def source_recording(path: Path, name: str, evaluated: bool, whole: bool = True) -> Recording | Skip:
    """A recording of the corpus itself, or why it cannot be used.

    In training a file that cannot be used is skipped. In evaluation (`evaluated`) nothing is: an empty file stays,
    as zero samples whose words all count as deleted, and any other fault is an error. `whole` reads every sample,
    else only the header.
    """
    try:
        info = audio_info(path)
        num_samples = info.num_samples
        if whole or num_samples is None:
            num_samples = len(read_audio(path)[0])
        if num_samples == 0:
            raise EmptyAudioError(path, "has no samples", "copy or download it again")
    except EmptyAudioError as error:
        return _recording(name, str(path), 1, SAMPLE_RATE_HZ, 0) if evaluated else Skip(name, str(error))
    except AudioError as error:
        if evaluated:
            raise AudioError(f"utterance {name} of an evaluation split: {error}") from error
        return Skip(name, str(error))
    return _recording(name, str(path), info.num_channels, info.rate_hz, num_samples)


def _recording(name: str, source: str, channels: int, rate_hz: int, num_samples: int) -> Recording:
    return Recording(
        id=name,
        sources=[AudioSource(type="file", channels=list(range(channels)), source=source)],
        sampling_rate=rate_hz,
        num_samples=num_samples,
        duration=num_samples / rate_hz,
    )


def check_unique(cuts: Iterable[MonoCut], split: str) -> None:
    """Refuse ids that are equal once white space around them is gone: one would overwrite the other's result."""
    seen: dict[str, MonoCut] = {}
    for cut in cuts:
        other = seen.setdefault(cut.id.strip(), cut)
        if other is not cut:
            raise ValueError(
                f"the {split} split has the utterance id {cut.id.strip()!r} twice: {other.id!r} from {_path(other)} "
                f"and {cut.id!r} from {_path(cut)}; rename one"
            )


def _path(cut: MonoCut) -> str:
    return "no recording" if cut.recording is None else str(cut.recording.sources[0].source)


def write_cuts(cuts: Iterable[MonoCut], path: Path) -> None:
    """One JSON object a line, compressed; the same cuts give the same bytes."""
    with path.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as lines:
        for cut in cuts:
            lines.write(json.dumps(cut.to_dict(), sort_keys=True).encode("ascii") + b"\n")


def read_cuts(path: Path, folder: Path) -> CutSet:
    """The cuts of a manifest, with the paths that it names relative to `folder` made absolute."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        cuts = [deserialize_cut(json.loads(line)) for line in lines]
    cuts = [cut.with_recording_path_prefix(folder) for cut in cuts]
    check_unique(cuts, path.name.split(".")[0])
    for cut in cuts[:: max(1, len(cuts) // CHECKED_PER_SPLIT)]:
        check_claim(cut)
    return CutSet.from_cuts(cuts)


def check_claim(cut: MonoCut) -> None:
    """Refuse a manifest that claims another sample rate than the file has: the audio would be stretched."""
    if cut.recording is None or cut.recording.num_samples == 0:
        return
    rate_hz = audio_info(_path(cut)).rate_hz
    if rate_hz != cut.recording.sampling_rate:
        raise AudioError(
            f"utterance {cut.id}: the manifest claims {cut.recording.sampling_rate} Hz, but {_path(cut)} "
            f"has {rate_hz} Hz; delete the prepared folder, and it will be prepared again"
        )
