import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.material import MissingCorpusError
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed

NAMES = ["_".join(f"{number:04b}") for number in range(16)]


@pytest.fixture
def small_yesno(tmp_path: Path, write_tone: Callable[..., Path]) -> Path:
    folder = tmp_path / "yesno" / "waves_yesno"
    for name in NAMES:
        write_tone(folder / f"{name}.wav")
    (folder / "README").write_text("about", encoding="utf-8")
    return folder.parent


def config(root: Path, tmp_path: Path) -> DataConfig:
    return DataConfig(corpus=Corpus.yesno, root=str(root), prepared_dir=str(tmp_path / "prepared"))


def test_the_name_is_the_transcript(small_yesno: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(small_yesno, tmp_path))
    cuts = {cut.id: cut for cuts in corpus.splits.values() for cut in listed(cuts)}
    assert sorted(cuts) == NAMES, "every file once, the README not"
    assert cuts["0_1_0_1"].supervisions[0].text == "no yes no yes"
    assert cuts["0_1_0_1"].load_audio().shape == (1, 3200)


def test_files_are_train_and_test_in_turn_with_dev_out_of_train(small_yesno: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(small_yesno, tmp_path))
    assert [cut.id for cut in listed(corpus.splits["test"])] == NAMES[1::2]
    assert [cut.id for cut in listed(corpus.splits["dev"])] == [NAMES[10]]
    assert len(corpus.splits["train"]) == 7


def test_a_bad_training_file_is_skipped_and_named(small_yesno: Path, tmp_path: Path) -> None:
    bad = small_yesno / "waves_yesno" / f"{NAMES[2]}.wav"
    bad.write_text("not audio", encoding="utf-8")
    corpus = prepare_corpus(config(small_yesno, tmp_path))
    assert [skip.id for skip in corpus.skipped] == [NAMES[2]]
    assert str(bad) in corpus.skipped[0].reason
    assert len(corpus.splits["train"]) == 6


def test_an_empty_evaluation_file_stays_and_any_other_fault_is_an_error(small_yesno: Path, tmp_path: Path) -> None:
    bad = small_yesno / "waves_yesno" / f"{NAMES[3]}.wav"
    bad.write_bytes(b"")
    corpus = prepare_corpus(config(small_yesno, tmp_path))
    cut = next(cut for cut in listed(corpus.splits["test"]) if cut.id == NAMES[3])
    assert cut.duration == 0
    assert cut.supervisions[0].text == "no no yes yes"
    bad.write_text("not audio", encoding="utf-8")
    with pytest.raises(ValueError, match=f"utterance {NAMES[3]} of an evaluation split: .*not readable audio"):
        prepare_corpus(config(small_yesno, tmp_path))


def test_the_files_may_lie_in_root_itself_also_with_a_strange_name(small_yesno: Path, tmp_path: Path) -> None:
    strange = tmp_path / "音 é(1)[x],= #"
    shutil.copytree(small_yesno / "waves_yesno", strange)
    corpus = prepare_corpus(config(strange, tmp_path))
    assert len(corpus.splits["test"]) == 8
    assert next(iter(listed(corpus.splits["test"]))).load_audio().shape == (1, 3200)


def test_a_folder_without_such_files_says_what_it_should_hold(tmp_path: Path) -> None:
    with pytest.raises(MissingCorpusError, match=r"must hold waves_yesno/.*openslr\.org/1"):
        prepare_corpus(config(tmp_path, tmp_path))


def test_the_real_corpus_splits_as_lhotse_splits_it(shared_data: Path, tmp_path: Path) -> None:
    corpus = prepare_corpus(config(shared_data, tmp_path))
    assert {split: len(cuts) for split, cuts in corpus.splits.items()} == {"train": 25, "dev": 5, "test": 30}
    assert corpus.skipped == []
