"""Connected digits from the Free Spoken Digit Dataset: real recordings of single digits, joined with pauses.

Layout: `recordings/{digit}_{speaker}_{index}.wav`, see https://github.com/Jakobovski/free-spoken-digit-dataset.
A recording belongs to one split only: index 0 to 4 is the official test split, 5 to 7 serves dev, the rest train.
With `data.holdout_speaker` one speaker's recordings are the test split and 5 to 7 of the others are dev.
`data.synthetic_utterances` adds voices of the embedded corpus to train, with the recordings' bandwidth.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem
from torch import Tensor

from chunkwise.audio.reading import AudioError, read_audio
from chunkwise.audio.resampling import resample
from chunkwise.data.corpora import digits
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.corpora.manifests import SAMPLE_RATE_HZ, utterance, write_recording
from chunkwise.data.corpora.material import Material, MissingCorpusError, Setting, contents, corpus_root
from chunkwise.data.corpora.progress import track
from chunkwise.data.corpora.strings import DIGITS, SPLITS, draw_length, generator, spell
from chunkwise.data.skips import Skip
from chunkwise.typing import Seconds

RECIPE = 1
"""Raise it whenever the same settings would give other audio."""

NAME = re.compile(r"(?P<digit>[0-9])_(?P<speaker>.+)_(?P<index>[0-9]+)")
TEST_INDICES, DEV_INDICES = range(5), range(5, 8)
INDICES = {"train": "index 8 and up", "dev": "index 5 to 7", "test": "index 0 to 4, or the held-out speaker"}
SHORTEST_DIGIT_S: Seconds = 0.1
PAUSE_S: tuple[Seconds, Seconds] = (0.05, 0.3)
RECORDED_HZ = 8_000
"""The corpus's own sample rate."""

BACKGROUND_DB = (-75.0, -45.0)
"""Bounds of the pauses' noise level, relative to full scale."""

SHUFFLES, LENGTHS, PAUSES = 1, 2, 3
"""What random numbers are for: each purpose has a stream of its own."""

LAYOUT = "recordings/{digit}_{speaker}_{index}.wav (the Free Spoken Digit Dataset)"
REMEDY = "get it with: git clone https://github.com/Jakobovski/free-spoken-digit-dataset"


@dataclass(frozen=True, slots=True)
class Take:
    """One recording of one digit."""

    digit: int
    speaker: str
    index: int
    waveform: Float[Tensor, " samples"]  # at 16 kHz
    background: float  # root mean square of its quietest hundredth of a second
    bandwidth_hz: float  # half the rate of its file


Speakers = dict[str, list[Take]]
"""The recordings of a split, by speaker."""


def settings(config: DataConfig) -> dict[str, Setting]:
    """Everything that decides the strings."""
    return {
        "recipe": RECIPE,
        "files": contents(_files(config)),
        "seed": config.seed,
        "holdout_speaker": config.holdout_speaker,
        **_synthetic_settings(config),
        **{f"{split}_utterances": count for split, count in _counts(config).items()},
    }


def prepare(config: DataConfig, folder: Path) -> Material:
    """The strings, their audio written below `folder`."""
    takes, skipped = _read_takes(_files(config))
    speakers = sorted({take.speaker for take in takes})
    if config.holdout_speaker is not None and config.holdout_speaker not in speakers:
        raise ValueError(
            f"data.holdout_speaker={config.holdout_speaker} must be a speaker of the corpus; try one of {speakers}"
        )
    splits: dict[str, list[MonoCut]] = {}
    for split, count in _counts(config).items():
        chosen = _by_speaker([take for take in takes if _split_of(take, config.holdout_speaker) == split])
        if not chosen:
            raise ValueError(
                f"data.root={config.root} has no usable recording for the {split} split, which takes "
                f"{INDICES[split]}; {REMEDY}"
            )
        strings = deal(chosen, count, config.seed, split)
        splits[split] = [
            _join(string, folder, split, index, config.seed)
            for index, string in enumerate(track(strings, f"joining digits for {split}", count))
        ]
    splits["train"] += _synthetic(config, folder)
    return Material(splits, skipped)


def _synthetic_settings(config: DataConfig) -> dict[str, Setting]:
    if not config.synthetic_utterances:
        return {}
    return {
        "synthetic_utterances": config.synthetic_utterances,
        "synthetic_recipe": digits.RECIPE,
        "espeakng_loader": version("espeakng-loader"),
    }


def _synthetic(config: DataConfig, folder: Path) -> list[MonoCut]:
    count = config.synthetic_utterances
    return [
        digits.synthesise(config.seed, "train", index, folder, bandwidth_hz=RECORDED_HZ / 2)
        for index in track(range(count), "synthesising voices for train", count)
    ]


def _counts(config: DataConfig) -> dict[str, int]:
    return dict(zip(SPLITS, (config.train_utterances, config.dev_utterances, config.test_utterances), strict=True))


def _files(config: DataConfig) -> list[Path]:
    root = corpus_root(config, LAYOUT, REMEDY)
    below = root / "recordings"
    files = sorted((below if below.is_dir() else root).glob("*.wav"))
    if not files:
        raise MissingCorpusError(f"data.root={config.root!r} must hold {LAYOUT}, but has no such file; {REMEDY}")
    return files


def _read_takes(files: list[Path]) -> tuple[list[Take], list[Skip]]:
    takes: list[Take] = []
    skipped: list[Skip] = []
    for file in track(files, "reading recordings", len(files)):
        try:
            takes.append(_read_take(file))
        except ValueError as error:
            skipped.append(Skip(file.stem, str(error)))
    return takes, skipped


def _read_take(file: Path) -> Take:
    name = NAME.fullmatch(file.stem)
    if name is None:
        raise AudioError(file, "is not named {digit}_{speaker}_{index}.wav", "rename it")
    waveform, rate_hz = read_audio(file)
    if len(waveform) < SHORTEST_DIGIT_S * rate_hz:
        raise AudioError(file, f"has {len(waveform)} samples, too few for a spoken digit", "record it again")
    waveform = resample(waveform, rate_hz, SAMPLE_RATE_HZ)
    frame = SAMPLE_RATE_HZ // 100
    loudness = waveform[: len(waveform) // frame * frame].unflatten(0, (-1, frame)).square().mean(dim=1).sqrt()
    return Take(
        digit=int(name["digit"]),
        speaker=name["speaker"],
        index=int(name["index"]),
        waveform=waveform,
        background=float(loudness.min()),
        bandwidth_hz=rate_hz / 2,
    )


def _split_of(take: Take, holdout_speaker: str | None) -> str:
    if holdout_speaker is not None:
        if take.speaker == holdout_speaker:
            return "test"
        return "dev" if take.index in DEV_INDICES else "train"
    if take.index in TEST_INDICES:
        return "test"
    return "dev" if take.index in DEV_INDICES else "train"


def _by_speaker(takes: list[Take]) -> Speakers:
    speakers: Speakers = defaultdict(list)
    for take in sorted(takes, key=lambda take: (take.speaker, take.digit, take.index)):
        speakers[take.speaker].append(take)
    return dict(speakers)


def deal(speakers: Speakers, count: int, seed: int, split: str) -> Iterator[list[Take]]:
    """`count` strings of one speaker each, speakers in turn.

    A speaker's recordings are dealt like a pack of cards that is shuffled anew when it is used up, so all are used
    equally often, to one.
    """
    names = list(speakers)
    packs: dict[str, list[Take]] = {name: [] for name in names}
    shuffles = {name: generator(seed, split, number, SHUFFLES) for number, name in enumerate(names)}
    for index in range(count):
        name = names[index % len(names)]
        length = draw_length(generator(seed, split, index, LENGTHS))
        string: list[Take] = []
        while len(string) < length:
            if not packs[name]:
                packs[name] = [speakers[name][at] for at in shuffles[name].permutation(len(speakers[name]))]
            string.append(packs[name].pop())
        yield string


def _join(string: list[Take], folder: Path, split: str, index: int, seed: int) -> MonoCut:
    random = generator(seed, split, index, PAUSES)
    pauses = random.uniform(*PAUSE_S, size=len(string) + 1)
    quietest, loudest = (10 ** (level_db / 20) for level_db in BACKGROUND_DB)
    background = min(max(sum(take.background for take in string) / len(string), quietest), loudest)
    pieces: list[Float[Tensor, " piece"]] = []
    words: list[AlignmentItem] = []
    for take, pause in zip([*string, None], pauses, strict=True):
        pieces.append(_pause(pause, background, string[0].bandwidth_hz, random))
        if take is not None:
            start = sum(len(piece) for piece in pieces) / SAMPLE_RATE_HZ
            words.append(AlignmentItem(DIGITS[take.digit], start, len(take.waveform) / SAMPLE_RATE_HZ))
            pieces.append(take.waveform)
    speaker = string[0].speaker
    recording = write_recording(folder, split, f"fsdd-{split}-{index:05d}-{speaker}", torch.cat(pieces))
    return utterance(recording, spell([take.digit for take in string]), speaker, words)


def _pause(
    duration_s: Seconds, level: float, bandwidth_hz: float, random: np.random.Generator
) -> Float[Tensor, " samples"]:
    """Faint noise with the bandwidth of the recordings around it: digital silence would mark the joints."""
    rate_hz = min(SAMPLE_RATE_HZ, round(2 * bandwidth_hz))
    noise = torch.from_numpy(random.standard_normal(round(duration_s * rate_hz)) * level).float()
    return resample(noise, rate_hz, SAMPLE_RATE_HZ)
