import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from lhotse.cut import Cut
from lhotse.recipes import librispeech as recipe
from lhotse.supervision import AlignmentItem

from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.material import MissingCorpusError
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed

TEXTS = {"1088-134315-0000": "AS YOU KNOW", "1088-134315-0001": "IT'S A FINE DAY", "7-8-0000": "GO ON"}


def write_part(root: Path, part: str, texts: dict[str, str] = TEXTS) -> Path:
    """A part in the corpus' own layout; the utterances' ids start with another speaker in each part."""
    folder = root / "LibriSpeech" / part
    for name, text in texts.items():
        chapter = folder.joinpath(*name.split("-")[:-1])
        chapter.mkdir(parents=True, exist_ok=True)
        noise = np.random.default_rng(0).standard_normal(8000 + len(text)) * 0.1
        soundfile.write(chapter / f"{name}.flac", noise, 16_000)
        with (chapter / f"{'-'.join(name.split('-')[:-1])}.trans.txt").open("a", encoding="utf-8") as transcript:
            transcript.write(f"{name} {text}\n")
    return folder


@pytest.fixture
def mini(tmp_path: Path) -> Path:
    for part in ("train-clean-5", "dev-clean-2"):
        write_part(tmp_path / "corpora", part)
    return tmp_path / "corpora"


def config(root: Path, tmp_path: Path, corpus: Corpus = Corpus.mini_librispeech, download: bool = False) -> DataConfig:
    return DataConfig(corpus=corpus, root=str(root), prepared_dir=str(tmp_path / "prepared"), download=download)


def test_mini_librispeech_is_read_in_lower_case(mini: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(mini, tmp_path))
    texts = {cut.id: cut.supervisions[0].text for cut in listed(corpus.splits["train"])}
    assert texts == {name: text.lower() for name, text in TEXTS.items()}
    cut = next(cut for cut in listed(corpus.splits["train"]) if cut.id == "1088-134315-0001")
    assert cut.supervisions[0].speaker == "1088"
    assert cut.load_audio().shape == (1, 8015)


def test_the_one_evaluation_part_of_mini_is_noted(mini: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(mini, tmp_path))
    assert [cut.id for cut in listed(corpus.splits["dev"])] == [cut.id for cut in listed(corpus.splits["test"])]
    assert "dev-clean-2 serves as dev and as test" in corpus.notes[0]


def test_librispeech_takes_the_parts_that_exist(tmp_path: Path) -> None:
    for number, part in enumerate(("train-clean-100", "train-other-500", "dev-clean", "dev-other", "test-clean")):
        write_part(tmp_path, part, {f"{number}-1-0000": "A", f"{number}-1-0001": "B"})
    corpus = prepare_corpus(config(tmp_path, tmp_path, Corpus.librispeech))
    ids = {split: [cut.id for cut in listed(cuts)] for split, cuts in corpus.splits.items()}
    assert ids == {
        "train": ["0-1-0000", "0-1-0001", "1-1-0000", "1-1-0001"],
        "dev": ["2-1-0000", "2-1-0001", "3-1-0000", "3-1-0001"],
        "test": ["4-1-0000", "4-1-0001"],
    }
    write_part(tmp_path, "test-other", {"9-1-0000": "C"})
    completed = prepare_corpus(config(tmp_path, tmp_path, Corpus.librispeech))
    assert not completed.reused
    assert [cut.id for cut in listed(completed.splits["test_other"])] == ["9-1-0000"]


def test_bad_training_files_are_skipped_and_named(mini: Path, tmp_path: Path) -> None:
    chapter = mini / "LibriSpeech" / "train-clean-5" / "1088" / "134315"
    (chapter / "1088-134315-0000.flac").unlink()
    (chapter / "1088-134315-0001.flac").write_text("not audio", encoding="utf-8")
    corpus = prepare_corpus(config(mini, tmp_path))
    assert [cut.id for cut in listed(corpus.splits["train"])] == ["7-8-0000"]
    reasons = {skip.id: skip.reason for skip in corpus.skipped}
    assert "0000.flac does not exist" in reasons["1088-134315-0000"]
    assert "0001.flac is not readable audio" in reasons["1088-134315-0001"]


def test_a_line_without_words_is_skipped_in_training_and_kept_in_evaluation(mini: Path, tmp_path: Path) -> None:
    for part in ("train-clean-5", "dev-clean-2"):
        transcript = mini / "LibriSpeech" / part / "7" / "8" / "7-8.trans.txt"
        transcript.write_text("7-8-0000\n", encoding="utf-8")
    corpus = prepare_corpus(config(mini, tmp_path))
    assert [skip.id for skip in corpus.skipped] == ["7-8-0000"]
    assert next(cut for cut in listed(corpus.splits["test"]) if cut.id == "7-8-0000").supervisions[0].text == ""


def test_a_missing_evaluation_file_is_an_error_naming_it(mini: Path, tmp_path: Path) -> None:
    (mini / "LibriSpeech" / "dev-clean-2" / "7" / "8" / "7-8-0000.flac").unlink()
    with pytest.raises(ValueError, match=r"utterance 7-8-0000 of an evaluation split: .*7-8-0000\.flac does not exist"):
        prepare_corpus(config(mini, tmp_path))


def test_an_id_in_two_transcripts_is_an_error_naming_both(mini: Path, tmp_path: Path) -> None:
    other = mini / "LibriSpeech" / "train-clean-5" / "9"
    other.mkdir()
    (other / "9.trans.txt").write_text("7-8-0000 AGAIN\n", encoding="utf-8")
    with pytest.raises(ValueError, match="train split has the utterance id '7-8-0000' twice"):
        prepare_corpus(config(mini, tmp_path))


def test_word_times_are_kept_where_the_corpus_has_them(
    mini: Path, tmp_path: Path, words_of: Callable[[Cut], list[AlignmentItem]]
) -> None:
    alignment = mini / "LibriSpeech" / "train-clean-5" / "7" / "8" / "7-8.alignment.txt"
    alignment.write_text('7-8-0000 ",GO,ON," "0.1,0.2,0.4,0.5"\n', encoding="utf-8")
    corpus = prepare_corpus(config(mini, tmp_path))
    cut = next(cut for cut in listed(corpus.splits["train"]) if cut.id == "7-8-0000")
    words = [(word.symbol, word.start, word.end) for word in words_of(cut)]
    assert words == [("go", 0.1, 0.2), ("on", 0.2, 0.4)]


def test_missing_parts_are_named_with_the_remedy(mini: Path, tmp_path: Path) -> None:
    with pytest.raises(
        MissingCorpusError, match=r"has no train-clean-100 or .* for the train split; set data\.download"
    ):
        prepare_corpus(config(mini, tmp_path, Corpus.librispeech))


def test_root_may_be_the_inner_folder(mini: Path, tmp_path: Path) -> None:
    assert len(prepare_corpus(config(mini / "LibriSpeech", tmp_path)).splits["train"]) == 3


def test_download_fetches_only_what_is_missing(mini: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, list[str]]] = []

    def fetch(target: Path, dataset_parts: list[str]) -> None:
        calls.append((target, dataset_parts))
        for part in dataset_parts:
            shutil.rmtree(target / "LibriSpeech" / part, ignore_errors=True)
            write_part(target, part)

    monkeypatch.setattr(recipe, "download_librispeech", fetch)
    prepare_corpus(config(mini, tmp_path, download=True))
    assert calls == []
    empty = tmp_path / "empty"
    assert len(prepare_corpus(config(empty, tmp_path, download=True)).splits["train"]) == 3
    (empty / "train-clean-5.tar.gz").touch()  # an archive without the mark that it was unpacked
    prepare_corpus(config(empty / "LibriSpeech", tmp_path, download=True))
    assert calls == [(empty, ["train-clean-5", "dev-clean-2"]), (empty, ["train-clean-5"])]


def test_a_failed_download_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Path, dataset_parts: list[str]) -> None:
        raise OSError("network is unreachable")

    monkeypatch.setattr(recipe, "download_librispeech", fail)
    with pytest.raises(ConnectionError, match=r"could not fetch train-clean-5, dev-clean-2 .*network is unreachable"):
        prepare_corpus(config(tmp_path, tmp_path, download=True))
