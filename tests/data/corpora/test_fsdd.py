from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from lhotse.cut import Cut
from lhotse.supervision import AlignmentItem

from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.fsdd import Take, deal
from chunkwise.data.corpora.material import MissingCorpusError
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.corpora.strings import DIGITS
from chunkwise.data.loading import listed, load_waveform, transcript

Words = Callable[[Cut], list[AlignmentItem]]


def config(root: Path, tmp_path: Path, holdout: str | None = None, train: int = 12) -> DataConfig:
    return DataConfig(
        corpus=Corpus.fsdd,
        root=str(root),
        prepared_dir=str(tmp_path / "prepared"),
        train_utterances=train,
        dev_utterances=6,
        test_utterances=36,
        holdout_speaker=holdout,
    )


def takes(speakers: str = "ab", per_speaker: int = 10) -> dict[str, list[Take]]:
    return {
        speaker: [Take(index % 10, speaker, index, torch.zeros(1), 0.0, 4000.0) for index in range(per_speaker)]
        for speaker in speakers
    }


def test_strings_have_one_speaker_and_two_to_seven_digits(small_fsdd: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(small_fsdd, tmp_path))
    assert {split: len(cuts) for split, cuts in corpus.splits.items()} == {"train": 12, "dev": 6, "test": 36}
    for cut in listed(corpus.splits["test"]):
        words = transcript(cut).split()
        assert 2 <= len(words) <= 7
        assert set(words) <= set(DIGITS)
        assert cut.sampling_rate == 16_000
    assert {cut.supervisions[0].speaker for cut in listed(corpus.splits["test"])} == {"ann", "bo", "cy"}


def test_each_split_holds_its_own_recordings(small_fsdd: Path, tmp_path: Path, words_of: Words) -> None:
    corpus = prepare_corpus(config(small_fsdd, tmp_path))
    lengths = {"train": {8, 9}, "dev": {5, 6, 7}, "test": {0, 1, 2, 3, 4}}  # take n lasts 0.2 + n / 100 seconds
    for split, cuts in corpus.splits.items():
        heard = {round((word.duration - 0.2) * 100) for cut in listed(cuts) for word in words_of(cut)}
        assert heard == lengths[split]


def test_a_held_out_speaker_is_heard_in_test_only(small_fsdd: Path, tmp_path: Path, words_of: Words) -> None:
    corpus = prepare_corpus(config(small_fsdd, tmp_path, holdout="bo"))
    speakers = {split: {cut.supervisions[0].speaker for cut in listed(cuts)} for split, cuts in corpus.splits.items()}
    assert speakers == {"train": {"ann", "cy"}, "dev": {"ann", "cy"}, "test": {"bo"}}
    heard = {round((word.duration - 0.2) * 100) for cut in listed(corpus.splits["test"]) for word in words_of(cut)}
    assert heard == set(range(10)), "all recordings of the speaker, whatever their index"


def test_an_unknown_held_out_speaker_is_refused_with_the_known_ones(small_fsdd: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"data\.holdout_speaker=zoe must be .* \['ann', 'bo', 'cy'\]"):
        prepare_corpus(config(small_fsdd, tmp_path, holdout="zoe"))
    assert not list((tmp_path / "prepared").iterdir()), "nothing half-made stays"


def test_the_same_recordings_give_the_same_bytes_and_a_changed_one_another_folder(
    own_fsdd: Path, tmp_path: Path
) -> None:
    folders = [prepare_corpus(config(own_fsdd, tmp_path / name)).folder for name in "ab"]
    assert folders[0].name == folders[1].name
    for path in folders[0].rglob("*.*"):
        assert path.read_bytes() == (folders[1] / path.relative_to(folders[0])).read_bytes()
    changed = own_fsdd / "recordings" / "0_ann_9.wav"
    changed.write_bytes(changed.read_bytes()[:-2] + b"\1\1")  # of the same size
    assert prepare_corpus(config(own_fsdd, tmp_path / "a")).folder.name != folders[0].name


def test_recordings_are_dealt_equally_often() -> None:
    strings = list(deal(takes(), 40, seed=0, split="test"))
    used = Counter((take.speaker, take.index) for string in strings for take in string)
    assert len(used) == 20, "every recording is used"
    for speaker in "ab":
        counts = [count for (name, _), count in used.items() if name == speaker]
        assert max(counts) - min(counts) <= 1


def test_dealing_depends_on_the_seed_only() -> None:
    def indices(seed: int) -> list[list[int]]:
        return [[take.index for take in string] for string in deal(takes(), 10, seed, "train")]

    assert indices(1) == indices(1) != indices(2)


def test_pauses_are_faint_noise_and_not_digital_silence(small_fsdd: Path, tmp_path: Path, words_of: Words) -> None:
    corpus = prepare_corpus(config(small_fsdd, tmp_path))
    pauses: list[float] = []
    for cut in listed(corpus.splits["train"]):
        samples = load_waveform(cut, 16_000).numpy()
        bounds = [0.0]
        for word in words_of(cut):
            bounds += [word.start, word.end]
        bounds.append(cut.duration)
        for start, end in zip(bounds[::2], bounds[1::2], strict=True):
            pauses.append(end - start)
            pause = samples[round(start * 16_000) + 100 : round(end * 16_000) - 100]
            assert 0 < pause.std() < 0.01
            assert np.count_nonzero(pause) > len(pause) / 2
    assert 0.049 <= min(pauses) < max(pauses) <= 0.301


def test_recordings_that_cannot_be_used_are_skipped_and_named_once(own_fsdd: Path, tmp_path: Path) -> None:
    recordings = own_fsdd / "recordings"
    (recordings / "0_ann_8.wav").write_text("this is not audio", encoding="utf-8")
    (recordings / "1_ann_8.wav").write_bytes(b"")
    soundfile.write(recordings / "2_ann_8.wav", np.array([0.1] * 3000 + [np.nan] * 9), 8000, subtype="FLOAT")
    soundfile.write(recordings / "3_ann_8.wav", np.zeros(399), 8000)
    soundfile.write(recordings / "4_ann_8.wav", np.zeros(0), 8000)
    (recordings / "4_ann_9.wav").rename(recordings / "four-ann.wav")
    corpus = prepare_corpus(config(own_fsdd, tmp_path))
    reasons = {skip.id: skip.reason for skip in corpus.skipped}
    assert set(reasons) == {"0_ann_8", "1_ann_8", "2_ann_8", "3_ann_8", "4_ann_8", "four-ann"}
    assert "not readable audio" in reasons["0_ann_8"]
    assert "empty" in reasons["1_ann_8"]
    assert "non-finite" in reasons["2_ann_8"]
    assert "399 samples, too few" in reasons["3_ann_8"]
    assert "{digit}_{speaker}_{index}.wav" in reasons["four-ann"]
    again = prepare_corpus(config(own_fsdd, tmp_path))
    assert again.reused
    assert again.skipped == corpus.skipped, "what was skipped stays known"


def test_stereo_recordings_of_any_rate_become_16_khz_mono(
    own_fsdd: Path, tmp_path: Path, write_tone: Callable[..., Path], words_of: Words
) -> None:
    for path in (own_fsdd / "recordings").glob("*_ann_*.wav"):
        write_tone(path, 0.25, rate_hz=44_100, channels=2)
    corpus = prepare_corpus(config(own_fsdd, tmp_path))
    cut = next(cut for cut in listed(corpus.splits["train"]) if cut.supervisions[0].speaker == "ann")
    word = words_of(cut)[0]
    assert word.duration == pytest.approx(0.25)
    tone = load_waveform(cut, 16_000).numpy()[round(word.start * 16_000) :][:4000]
    assert np.abs(np.fft.rfft(tone)).argmax() * 4 == pytest.approx(440, abs=4)


def test_a_missing_folder_is_one_sentence_with_key_value_layout_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpusError) as caught:
        prepare_corpus(config(tmp_path / "nowhere", tmp_path))
    for part in ("data.root='", "nowhere", "{digit}_{speaker}_{index}.wav", "does not exist", "git clone"):
        assert part in str(caught.value)


@pytest.mark.parametrize("root", [None, ""])
def test_no_root_asks_for_one(root: str | None, tmp_path: Path) -> None:
    config = DataConfig(corpus=Corpus.fsdd, root=root, prepared_dir=str(tmp_path))
    with pytest.raises(MissingCorpusError, match=r"data\.root=.* must name a folder that holds recordings/"):
        prepare_corpus(config)


def test_a_folder_without_recordings_says_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpusError, match=r"must hold recordings/.*has no such file"):
        prepare_corpus(config(tmp_path, tmp_path))


def test_the_recordings_may_lie_in_root_itself(small_fsdd: Path, tmp_path: Path) -> None:
    assert len(prepare_corpus(config(small_fsdd / "recordings", tmp_path)).splits["train"]) == 12


def test_real_recordings_are_all_usable(shared_data: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(shared_data / "fsdd", tmp_path))
    assert corpus.skipped == []
    assert {cut.supervisions[0].speaker for cut in listed(corpus.splits["train"])} == {
        *("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
    }


def test_synthetic_voices_join_training_only_with_the_recordings_bandwidth(small_fsdd: Path, tmp_path: Path) -> None:
    plain = config(small_fsdd, tmp_path, holdout="bo")
    corpus = prepare_corpus(replace(plain, synthetic_utterances=3))
    assert corpus.folder != prepare_corpus(plain).folder
    synthetic = [cut for cut in listed(corpus.splits["train"]) if cut.id.startswith("digits-")]
    assert len(corpus.splits["train"]) == 15
    assert len(synthetic) == 3
    for split in ("dev", "test"):
        assert not any(cut.id.startswith("digits-") for cut in listed(corpus.splits[split]))
    for cut in synthetic:
        power = torch.fft.rfft(load_waveform(cut, 16_000)).abs().square()
        assert power[len(power) * 9 // 16 :].sum() < 1e-3 * power.sum()  # next to nothing above 4.5 kHz


def test_synthetic_voices_are_for_fsdd() -> None:
    with pytest.raises(ValueError, match=r"data\.synthetic_utterances=3 must be 0 for data\.corpus=yesno"):
        DataConfig(corpus=Corpus.yesno, synthetic_utterances=3)
