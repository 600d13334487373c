"""The embedded corpus: strings of spoken digits from many synthetic voices, made at first use."""

import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from lhotse import MonoCut
from lhotse.supervision import AlignmentItem

from chunkwise.audio.resampling import resample
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.corpora.espeak import Delivery, Speech, speak
from chunkwise.data.corpora.manifests import SAMPLE_RATE_HZ, utterance, write_recording
from chunkwise.data.corpora.material import Material, Setting
from chunkwise.data.corpora.progress import track
from chunkwise.data.corpora.strings import DIGITS, SPLITS, draw_length, generator, spell
from chunkwise.data.corpora.voices import ACCENTS, VARIANTS
from chunkwise.typing import Seconds

RECIPE = 1
"""Raise it whenever the same settings would give other audio."""

PEAK = 0.97
THREADS = 2  # eSpeak itself runs in one at a time

_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Everything that makes one utterance: it is drawn first, then rendered."""

    digits: list[int]
    delivery: Delivery
    level_db: float  # root mean square of the speech, relative to full scale
    snr_db: float
    tilt: float  # of the noise's spectrum: 0 is white, 1 is pink
    lead_s: Seconds
    tail_s: Seconds
    noise_seed: int


def settings(config: DataConfig) -> dict[str, Setting]:
    """Everything that decides the corpus."""
    return {
        "recipe": RECIPE,
        "espeakng_loader": version("espeakng-loader"),
        "seed": config.seed,
        **{f"{split}_utterances": count for split, count in _counts(config).items()},
    }


def prepare(config: DataConfig, folder: Path) -> Material:
    """The corpus, its audio written below `folder`."""
    jobs = [(split, index) for split, count in _counts(config).items() for index in range(count)]
    splits: dict[str, list[MonoCut]] = {split: [] for split in SPLITS}
    with ThreadPoolExecutor(THREADS) as threads:
        cuts = threads.map(lambda job: synthesise(config.seed, job[0], job[1], folder), jobs)
        for (split, _), cut in zip(jobs, track(cuts, "synthesising digits", len(jobs)), strict=True):
            splits[split].append(cut)
    return Material(splits)


def _counts(config: DataConfig) -> dict[str, int]:
    return dict(zip(SPLITS, (config.train_utterances, config.dev_utterances, config.test_utterances), strict=True))


def draw_scene(seed: int, split: str, index: int) -> Scene:
    """What utterance `index` of a split says, who says it, how and where.

    >>> draw_scene(0, "test", 7) == draw_scene(0, "test", 7) != draw_scene(1, "test", 7)
    True
    """
    random = generator(seed, split, index)
    variants = VARIANTS[split]
    delivery = Delivery(
        voice=f"{ACCENTS[random.integers(len(ACCENTS))]}+{variants[random.integers(len(variants))]}",
        rate_wpm=int(random.integers(120, 211)),
        pitch=int(random.integers(30, 71)),
        pitch_range=int(random.integers(20, 81)),
        word_gap_10ms=int(random.integers(0, 16)),
        seed=int(random.integers(1, 2**31)),
    )
    return Scene(
        digits=random.integers(len(DIGITS), size=draw_length(random)).tolist(),
        delivery=delivery,
        level_db=float(random.uniform(-32, -18)),
        snr_db=float(random.uniform(15, 35)),
        tilt=float(random.uniform(0, 1)),
        lead_s=float(random.uniform(0.05, 0.3)),
        tail_s=float(random.uniform(0.1, 0.4)),
        noise_seed=int(random.integers(2**31)),
    )


def render(scene: Scene, speech: Speech) -> Float[np.ndarray, " samples"]:
    """The utterance at 16 kHz: speech at its level, silence around it, noise over all."""
    waveform = torch.from_numpy(speech.samples / 32768)  # float64: 16-bit files come out the same on any machine
    with _ONE_AT_A_TIME:  # resampling sets a switch of torch that all threads share
        spoken = resample(waveform, speech.rate_hz, SAMPLE_RATE_HZ).numpy()
    spoken *= 10 ** (scene.level_db / 20) / _rms(spoken)
    around = [round(scene.lead_s * SAMPLE_RATE_HZ), round(scene.tail_s * SAMPLE_RATE_HZ)]
    mixed = np.pad(spoken, around)
    noise = coloured_noise(len(mixed), scene.tilt, np.random.default_rng(scene.noise_seed))
    mixed += noise * 10 ** ((scene.level_db - scene.snr_db) / 20)
    return mixed * min(1.0, PEAK / float(np.abs(mixed).max()))


def coloured_noise(num_samples: int, tilt: float, random: np.random.Generator) -> Float[np.ndarray, " samples"]:
    """Gaussian noise of unit power whose power falls with frequency to the power `tilt`."""
    size = 2 ** math.ceil(math.log2(num_samples))  # quick to transform
    spectrum = np.fft.rfft(random.standard_normal(size))
    frequency = np.maximum(np.arange(len(spectrum)), len(spectrum) // 100)  # flat below 80 Hz
    noise = np.fft.irfft(spectrum * np.maximum(frequency, 1) ** (-tilt / 2))[:num_samples]
    return noise / _rms(noise)


def _rms(samples: Float[np.ndarray, " samples"]) -> float:
    return float(np.sqrt(np.mean(samples**2)))


def synthesise(seed: int, split: str, index: int, folder: Path, bandwidth_hz: float | None = None) -> MonoCut:
    """Utterance `index` of a split, its audio written below `folder`; `bandwidth_hz` takes away what lies above it."""
    scene = draw_scene(seed, split, index)
    speech = speak(spell(scene.digits), scene.delivery)
    waveform = torch.from_numpy(render(scene, speech))
    if bandwidth_hz is not None:
        narrow_hz = round(2 * bandwidth_hz)
        with _ONE_AT_A_TIME:
            narrow = resample(waveform, SAMPLE_RATE_HZ, narrow_hz)
            waveform = resample(narrow, narrow_hz, SAMPLE_RATE_HZ)[: len(waveform)]
    recording = write_recording(folder, split, f"digits-{split}-{index:05d}", waveform)
    words = [
        AlignmentItem(DIGITS[digit], round(scene.lead_s + start, 4), round(end - start, 4))
        for digit, (start, end) in zip(scene.digits, speech.words, strict=True)
    ]
    custom = {"snr_db": round(scene.snr_db, 2), "rate_wpm": float(scene.delivery.rate_wpm)}
    return utterance(recording, spell(scene.digits), Path(scene.delivery.voice).name, words, custom)
