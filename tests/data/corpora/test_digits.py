import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse.cut import Cut, MonoCut
from lhotse.supervision import AlignmentItem

from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.corpora.digits import coloured_noise, draw_scene
from chunkwise.data.corpora.prepare import PreparedCorpus, prepare_corpus
from chunkwise.data.corpora.strings import DIGITS
from chunkwise.data.corpora.voices import ACCENTS, VARIANTS
from chunkwise.data.loading import listed, load_waveform, transcript


def config(folder: Path, seed: int = 3, train: int = 16) -> DataConfig:
    return DataConfig(prepared_dir=str(folder), seed=seed, train_utterances=train, dev_utterances=4, test_utterances=6)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> PreparedCorpus:
    return prepare_corpus(config(tmp_path_factory.mktemp("digits")))


def content(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_same_seed_gives_the_same_bytes(corpus: PreparedCorpus, tmp_path: Path) -> None:
    assert content(prepare_corpus(config(tmp_path)).folder) == content(corpus.folder)


def test_an_utterance_does_not_depend_on_how_many_there_are(corpus: PreparedCorpus, tmp_path: Path) -> None:
    fewer = prepare_corpus(config(tmp_path, train=2))
    common = {name: digest for name, digest in content(fewer.folder).items() if name.endswith(".flac")}
    assert len(common) == 12
    assert common.items() <= content(corpus.folder).items()


def test_another_seed_gives_another_corpus(corpus: PreparedCorpus, tmp_path: Path) -> None:
    other = prepare_corpus(config(tmp_path, seed=4, train=2))
    texts = [cut.supervisions[0].text for cut in listed(other.splits["test"])]
    assert texts != [cut.supervisions[0].text for cut in listed(corpus.splits["test"])]


def test_strings_have_two_to_seven_digits(corpus: PreparedCorpus) -> None:
    assert {split: len(cuts) for split, cuts in corpus.splits.items()} == {"train": 16, "dev": 4, "test": 6}
    lengths = set()
    for cuts in corpus.splits.values():
        for cut in listed(cuts):
            words = transcript(cut).split()
            assert set(words) <= set(DIGITS)
            lengths.add(len(words))
    assert lengths == {2, 3, 4, 5, 6, 7}


def test_no_voice_is_heard_in_two_splits(corpus: PreparedCorpus) -> None:
    variants = [
        {str(cut.supervisions[0].speaker).split("+")[1] for cut in listed(cuts)} for cuts in corpus.splits.values()
    ]
    assert sum(map(len, variants)) == len(set.union(*variants)) > 10


def test_the_audio_is_16_khz_mono_without_clipping(corpus: PreparedCorpus) -> None:
    for cuts in corpus.splits.values():
        for cut in listed(cuts):
            assert isinstance(cut, MonoCut)
            assert cut.recording is not None
            samples, rate_hz = soundfile.read(str(cut.recording.sources[0].source))
            assert (rate_hz, samples.ndim, len(samples)) == (16_000, 1, cut.num_samples)
            assert np.abs(samples).max() <= 0.98
            assert 0.7 < cut.duration < 6


def test_words_stand_where_the_sound_is(corpus: PreparedCorpus, words_of: Callable[[Cut], list[AlignmentItem]]) -> None:
    for cut in listed(corpus.splits["train"]):
        samples = load_waveform(cut, 16_000).double().numpy()
        words = words_of(cut)
        assert [word.symbol for word in words] == transcript(cut).split()
        spoken = np.zeros(len(samples), dtype=bool)
        for word in words:
            assert 0 < word.start < word.end < cut.duration
            spoken[round(word.start * 16_000) : round(word.end * 16_000)] = True
        speech, silence = samples[spoken].std(), samples[~spoken].std()
        assert 10 < 20 * np.log10(speech / silence) < 40, "light noise: 15 to 35 dB"
        assert -36 < 20 * np.log10(speech) < -15


def test_scenes_cover_every_voice_accent_and_length() -> None:
    for split, variants in VARIANTS.items():
        scenes = [draw_scene(0, split, index) for index in range(1000)]
        accents_heard, variants_heard = zip(*(scene.delivery.voice.split("+") for scene in scenes), strict=True)
        assert set(accents_heard) == set(ACCENTS)
        assert set(variants_heard) == set(variants)
        assert {len(scene.digits) for scene in scenes} == {2, 3, 4, 5, 6, 7}
        counts = Counter(digit for scene in scenes for digit in scene.digits)
        assert max(counts.values()) < 1.4 * min(counts.values())


def test_noise_has_unit_power_and_falls_with_its_tilt() -> None:
    white = coloured_noise(20_000, 0.0, np.random.default_rng(0))
    pink = coloured_noise(20_000, 1.0, np.random.default_rng(0))
    for noise in (white, pink):
        assert np.mean(noise**2) == pytest.approx(1)
    powers = [np.abs(np.fft.rfft(noise)) ** 2 for noise in (white, pink)]
    ratios = [power[1000:2000].sum() / power[4000:5000].sum() for power in powers]  # three times the frequency
    assert ratios[0] == pytest.approx(1, abs=0.15)
    assert ratios[1] == pytest.approx(3, abs=0.5)
