from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from lhotse import MonoCut
from lhotse.utils import fastcopy

from chunkwise.data.corpora.manifests import (
    check_claim,
    check_unique,
    read_cuts,
    source_recording,
    utterance,
    write_cuts,
    write_recording,
)
from chunkwise.data.loading import listed, load_waveform
from chunkwise.data.skips import Skip


def cut_named(name: str, folder: Path) -> MonoCut:
    return utterance(write_recording(folder, "test", name.strip(), torch.zeros(160)), "one", "ann")


@pytest.mark.parametrize("other", ["u2", " u2", "u2\t"])
def test_ids_that_are_equal_once_stripped_are_refused_naming_both(other: str, tmp_path: Path) -> None:
    first = cut_named("u2", tmp_path)
    second = fastcopy(cut_named("u3", tmp_path), id=other)
    with pytest.raises(ValueError, match=r"'u2' twice: 'u2' from .*u2\.flac and .* from .*u3\.flac"):
        check_unique([first, second], "test")


def test_a_manifest_with_an_id_twice_is_refused_when_read(tmp_path: Path) -> None:
    cut = cut_named("u1", tmp_path)
    write_cuts([cut, cut], tmp_path / "test.jsonl.gz")
    with pytest.raises(ValueError, match="the test split has the utterance id 'u1' twice"):
        read_cuts(tmp_path / "test.jsonl.gz", tmp_path)


def test_what_is_written_is_read_back_with_absolute_paths(tmp_path: Path) -> None:
    folder = tmp_path / "é 音"
    cut = utterance(write_recording(folder, "dev", "u1", torch.full((320,), 0.25)), "größe 鬱", "ann")
    write_cuts([cut], folder / "dev.jsonl.gz")
    moved = folder.rename(tmp_path / "moved")
    (read,) = listed(read_cuts(moved / "dev.jsonl.gz", moved))
    assert read.supervisions[0].text == "größe 鬱"
    assert isinstance(read, MonoCut)
    assert read.recording is not None
    assert read.recording.sources[0].source == str(moved / "audio" / "dev" / "u1.flac")
    assert load_waveform(read, 16_000).tolist() == [0.25] * 320


def test_the_same_cuts_give_the_same_bytes(tmp_path: Path) -> None:
    cut = cut_named("u1", tmp_path)
    for name in ("a.jsonl.gz", "b.jsonl.gz"):
        write_cuts([cut], tmp_path / name)
    assert (tmp_path / "a.jsonl.gz").read_bytes() == (tmp_path / "b.jsonl.gz").read_bytes()


def test_a_claim_of_another_rate_is_refused(tmp_path: Path, write_tone: Callable[..., Path]) -> None:
    recording = source_recording(write_tone(tmp_path / "u1.wav", rate_hz=8000), "u1", evaluated=True)
    assert not isinstance(recording, Skip)
    cut = utterance(recording, "one", "ann")
    check_claim(cut)
    write_tone(tmp_path / "u1.wav", rate_hz=16_000)
    with pytest.raises(ValueError, match=r"utterance u1: the manifest claims 8000 Hz, but .*u1\.wav has 16000 Hz"):
        check_claim(cut)


def test_samples_are_rounded_and_never_wrap_around(tmp_path: Path) -> None:
    recording = write_recording(tmp_path, "train", "u1", torch.tensor([1.5, -2.0, 1.0, 0.5, 0.0]))
    cut = utterance(recording, "one", "ann").with_recording_path_prefix(tmp_path)
    assert load_waveform(cut, 16_000).tolist() == [32767 / 32768, -1.0, 32767 / 32768, 0.5, 0.0]
