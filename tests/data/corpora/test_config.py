import pytest

from chunkwise.data.corpora.config import Corpus, DataConfig


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"train_utterances": 0}, r"data\.train_utterances=0 must be 1 or more"),
        ({"seed": -1}, r"data\.seed=-1 must be 0 or more"),
        ({"num_workers": -2}, r"data\.num_workers=-2 must be 0 or more"),
        ({"max_batch_s": 0.0}, r"data\.max_batch_s=0\.0 must be a positive number"),
        ({"max_batch_s": float("nan")}, r"data\.max_batch_s=nan must be a positive number"),
        ({"prepared_dir": " "}, r"data\.prepared_dir=' ' must name a folder"),
        ({"holdout_speaker": "theo"}, r"data\.holdout_speaker=theo must be null for data\.corpus=digits"),
        ({"download": True}, r"data\.download=true must be false for data\.corpus=digits"),
        ({"root": "here"}, r"data\.root=here must be null for data\.corpus=digits"),
    ],
)
def test_impossible_values_are_refused_by_key(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DataConfig(**change)  # pyright: ignore[reportArgumentType]


def test_options_of_a_corpus_are_accepted_where_they_mean_something() -> None:
    assert DataConfig(corpus=Corpus.fsdd, root="fsdd", holdout_speaker="theo").holdout_speaker == "theo"
    assert DataConfig(corpus=Corpus.mini_librispeech, root="corpora", download=True).download
