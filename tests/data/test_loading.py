"""Audio of any rate arrives at the model's; what cannot be used is named, never passed on."""

import struct
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from lhotse import AudioSource, CutSet, Recording, SupervisionSegment
from lhotse.cut import Cut

from chunkwise.audio.reading import AudioError
from chunkwise.data.loading import BadAudio, SpeechDataset, load_batches, load_waveform, speaker, transcript
from chunkwise.text.tokenizer import Tokenizer, TokenizerConfig, TokenizerKind, train_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    config = TokenizerConfig(kind=TokenizerKind.char, vocab_size=None)
    return train_tokenizer(["one two three"], config, tmp_path_factory.mktemp("text") / "tokenizer.model")


def tone(rate_hz: int, seconds: float = 1.0) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(int(rate_hz * seconds)) / rate_hz)


def cut_of(path: Path, samples: int, rate_hz: int = 16_000, text: str = "one", channels: int = 1) -> Cut:
    """A cut as a manifest would have it, whatever the file holds."""
    source = AudioSource(type="file", channels=list(range(channels)), source=str(path))
    duration = samples / rate_hz
    recording = Recording(path.stem, [source], sampling_rate=rate_hz, num_samples=samples, duration=duration)
    cut = recording.to_cut()
    cut.supervisions = [SupervisionSegment(path.stem, path.stem, 0.0, duration, text=text)]
    return cut


def write(path: Path, samples: np.ndarray, rate_hz: int = 16_000, subtype: str = "FLOAT") -> Path:
    soundfile.write(path, samples, rate_hz, subtype=subtype)
    return path


@pytest.mark.parametrize(("rate_hz", "channels"), [(16_000, 1), (8000, 1), (48_000, 2), (44_100, 1)])
def test_any_rate_becomes_the_models_rate(tmp_path: Path, rate_hz: int, channels: int) -> None:
    samples = np.stack([tone(rate_hz)] * channels, axis=1)
    path = write(tmp_path / "tone.wav", samples, rate_hz)
    waveform = load_waveform(cut_of(path, rate_hz, rate_hz, channels=channels), 16_000)
    assert waveform.shape == (16_000,)
    assert waveform.dtype == torch.float32
    assert int(torch.fft.rfft(waveform).abs().argmax()) == 440


@pytest.mark.parametrize("rate_hz", [8000, 16_000])
def test_perturbed_speech_is_faster_and_higher(tmp_path: Path, rate_hz: int) -> None:
    path = write(tmp_path / "tone.wav", tone(rate_hz), rate_hz)
    waveform = load_waveform(cut_of(path, rate_hz, rate_hz).perturb_speed(1.1), 16_000)
    assert abs(len(waveform) - 16_000 / 1.1) <= 1
    peak_hz = int(torch.fft.rfft(waveform).abs().argmax()) * 16_000 / len(waveform)
    assert peak_hz == pytest.approx(484, abs=1)


@pytest.mark.parametrize("rate_hz", [8000, 16_000, 44_100])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_changes_in_the_manifest_are_not_taken_for_faults(tmp_path: Path, rate_hz: int, factor: float) -> None:
    path = write(tmp_path / "tone.wav", tone(rate_hz, 1.234), rate_hz)
    cut = cut_of(path, int(1.234 * rate_hz), rate_hz)
    for changed in (cut.resample(16_000).perturb_speed(factor), cut.perturb_speed(factor).resample(16_000)):
        assert len(load_waveform(changed, 16_000)) == changed.num_samples


def test_texts_are_normalised_and_joined_in_time(tmp_path: Path) -> None:
    cut = cut_of(tmp_path / "a.wav", 16_000)
    cut.supervisions = [
        SupervisionSegment("b", "a", 0.5, 0.5, text=" Two"),
        SupervisionSegment("a", "a", 0.0, 0.5, text="ONE\t"),
    ]
    assert transcript(cut) == "one two"
    cut.supervisions = []
    with pytest.raises(ValueError, match="utterance a has no transcript"):
        transcript(cut)


def test_a_cut_with_one_speaker_names_it(tmp_path: Path) -> None:
    cut = cut_of(tmp_path / "a.wav", 16_000)
    assert speaker(cut) is None
    for names, expected in ((["s"], "s"), (["s", "s"], "s"), (["s", "t"], None), ([], None)):
        cut.supervisions = [SupervisionSegment(str(n), "a", n, 0.5, speaker=name) for n, name in enumerate(names)]
        assert speaker(cut) == expected, names


def broken_cuts(folder: Path) -> dict[str, Cut]:
    """One cut for each way in which audio can be unusable, by what the reason says."""
    empty, text = folder / "empty.wav", folder / "text.wav"
    empty.write_bytes(b"")
    text.write_text("how are you? " * 20)
    nothing = write(folder / "nothing.wav", np.zeros(0))
    infinite = write(folder / "infinite.wav", np.array([0.1, np.nan] * 4000))
    slow = write(folder / "slow.wav", tone(8000), 8000)
    short = write(folder / "short.wav", tone(16_000, 0.5))
    halved = write(folder / "halved.wav", tone(16_000), subtype="PCM_16")
    content = bytearray(halved.read_bytes())
    at = content.index(b"data") + 4
    content[at : at + 4] = struct.pack("<I", 16_000)
    halved.write_bytes(content)
    return {
        "empty.wav is empty": cut_of(empty, 16_000),
        "nothing.wav has no samples": cut_of(nothing, 16_000),
        "text.wav is not readable audio": cut_of(text, 16_000),
        "gone.wav does not exist": cut_of(folder / "gone.wav", 16_000),
        "infinite.wav has non-finite samples": cut_of(infinite, 8000),
        "slow.wav has 8000 Hz, but its manifest says 16000 Hz": cut_of(slow, 8000),
        "short.wav lasts 0.500 s, but its manifest says 1.000 s": cut_of(short, 16_000),
        "halved.wav has audio beyond": cut_of(halved, 16_000),
    }


def test_training_skips_what_it_cannot_use_and_says_why(tmp_path: Path, tokenizer: Tokenizer) -> None:
    good = cut_of(write(tmp_path / "good.wav", tone(16_000)), 16_000)
    broken = broken_cuts(tmp_path)
    dataset = SpeechDataset(tokenizer, 16_000, BadAudio.skip)
    batch = dataset[CutSet.from_cuts([*broken.values(), good])]
    assert batch.ids == [good.id]
    assert batch.waveforms.isfinite().all()
    assert [skip.id for skip in batch.skipped] == [cut.id for cut in broken.values()]
    for skip, reason in zip(batch.skipped, broken, strict=True):
        assert reason in skip.reason
        assert "\n" not in skip.reason
    alone = dataset[CutSet.from_cuts(broken.values())]
    assert alone.weights.tolist() == [0.0]
    assert len(alone.skipped) == len(broken)


def test_evaluation_keeps_empty_audio_and_refuses_the_rest(tmp_path: Path, tokenizer: Tokenizer) -> None:
    # modelscope/FunASR#1924; dropping such utterances would flatter the error rate
    dataset = SpeechDataset(tokenizer, 16_000, BadAudio.refuse)
    for reason, cut in broken_cuts(tmp_path).items():
        if "empty" in reason or "no samples" in reason:
            batch = dataset[CutSet.from_cuts([cut])]
            assert batch.lengths.tolist() == [0]
            assert batch.weights.tolist() == [1.0]
        else:
            with pytest.raises(AudioError, match=f"utterance {cut.id}: .*{reason}"):
                dataset[CutSet.from_cuts([cut])]


@pytest.mark.parametrize("samples", [1, 79, 399, 400])
def test_audio_shorter_than_a_window_is_loaded(tmp_path: Path, tokenizer: Tokenizer, samples: int) -> None:
    cut = cut_of(write(tmp_path / "a.wav", np.ones(samples) / 2), samples)
    batch = SpeechDataset(tokenizer, 16_000, BadAudio.refuse)[CutSet.from_cuts([cut])]
    assert batch.lengths.tolist() == [samples]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_batches_come_in_order_and_leave_the_global_generator_alone(
    tmp_path: Path, tokenizer: Tokenizer, num_workers: int
) -> None:
    cuts = [cut_of(write(tmp_path / f"{i}.wav", tone(16_000, 0.1)), 1600) for i in range(4)]
    batches = [CutSet.from_cuts([cut]) for cut in cuts]
    before = torch.random.get_rng_state()
    loaded = list(load_batches(SpeechDataset(tokenizer, 16_000, BadAudio.refuse), batches, num_workers))
    assert [batch.ids for batch in loaded] == [[cut.id] for cut in cuts]
    assert torch.equal(torch.random.get_rng_state(), before)
