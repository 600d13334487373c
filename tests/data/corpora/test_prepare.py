import shutil
import socket
from pathlib import Path

import pytest

from chunkwise.data.corpora import digits
from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed


def config(prepared: Path | str, seed: int = 0, dev: int = 1, workers: int = 1) -> DataConfig:
    return DataConfig(
        prepared_dir=str(prepared),
        seed=seed,
        train_utterances=2,
        dev_utterances=dev,
        test_utterances=1,
        num_workers=workers,
    )


def test_a_second_preparation_reuses_the_first(tmp_path: Path) -> None:
    first = prepare_corpus(config(tmp_path))
    second = prepare_corpus(config(tmp_path, workers=0))
    assert (first.reused, second.reused) == (False, True)
    assert second.folder == first.folder
    assert listed(second.splits["train"]) == listed(first.splits["train"])


def test_other_settings_never_share_a_folder(tmp_path: Path) -> None:
    folders = {prepare_corpus(config(tmp_path, seed, dev)).folder for seed, dev in ((0, 1), (1, 1), (0, 2))}
    assert len(folders) == 3


def test_the_folder_may_be_moved(tmp_path: Path) -> None:
    prepare_corpus(config(tmp_path / "here"))
    (tmp_path / "here").rename(tmp_path / "there")
    corpus = prepare_corpus(config(tmp_path / "there"))
    assert corpus.reused
    assert next(iter(listed(corpus.splits["test"]))).load_audio().shape[0] == 1


def test_a_relative_folder_counts_from_where_the_program_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = prepare_corpus(config("prepared")).folder
    assert folder.parent == tmp_path / "prepared"


def test_an_interrupted_preparation_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(digits, "render", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            prepare_corpus(config(tmp_path))
    assert list(tmp_path.iterdir()) == []
    assert not prepare_corpus(config(tmp_path)).reused


def test_what_a_killed_process_left_is_cleared(tmp_path: Path) -> None:
    folder = prepare_corpus(config(tmp_path)).folder
    host = socket.gethostname()
    abandoned = folder.with_name(f".{folder.name}.{host}.999999999.partial")
    folder.rename(abandoned)
    assert not prepare_corpus(config(tmp_path)).reused
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_damaged_folder_is_named_and_not_used(tmp_path: Path) -> None:
    folder = prepare_corpus(config(tmp_path)).folder
    manifest = folder / "train.jsonl.gz"
    whole = manifest.read_bytes()
    for damage in (b"", whole[:10], whole[: len(whole) // 2], b"text"):
        manifest.write_bytes(damage)
        with pytest.raises(ValueError, match=rf"{folder.name}.*delete"):
            prepare_corpus(config(tmp_path))
    (folder / "prepared.json").unlink()
    with pytest.raises(ValueError, match=rf"{folder.name} is damaged .*prepared\.json"):
        prepare_corpus(config(tmp_path))
    shutil.rmtree(folder)
    assert not prepare_corpus(config(tmp_path)).reused
