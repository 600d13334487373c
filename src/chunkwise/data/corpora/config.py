"""Which corpus, where it lies and where its prepared form is kept."""

import math
from dataclasses import dataclass
from enum import StrEnum


class Corpus(StrEnum):
    """The corpora that can be prepared."""

    digits = "digits"
    fsdd = "fsdd"
    yesno = "yesno"
    mini_librispeech = "mini_librispeech"
    librispeech = "librispeech"


DOWNLOADABLE = (Corpus.mini_librispeech, Corpus.librispeech)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """A corpus, and how its utterances are batched."""

    corpus: Corpus = Corpus.digits
    root: str | None = None  # the corpus in its upstream folder layout; null for `digits`, which is synthesised
    prepared_dir: str = "prepared"  # manifests, tokenizers and statistics, one folder per fingerprint
    download: bool = False  # librispeech, mini_librispeech: fetch what `root` lacks
    seed: int = 0  # digits, fsdd: which strings are made
    train_utterances: int = 4000  # digits, fsdd: strings made for training
    dev_utterances: int = 200  # digits, fsdd
    test_utterances: int = 400  # digits, fsdd
    holdout_speaker: str | None = None  # fsdd: train on the others, test on this speaker
    synthetic_utterances: int = 0  # fsdd: strings in synthetic voices, as `digits` trains on, added to training
    max_batch_s: float = 60.0  # padded seconds of audio in a batch
    max_batch_utterances: int = 256
    num_buckets: int = 20
    num_workers: int = 1  # loader processes per rank

    def __post_init__(self) -> None:
        """Refuse values that no corpus or sampler can use."""
        counts = ("train_utterances", "dev_utterances", "test_utterances", "max_batch_utterances", "num_buckets")
        zero = ("seed", "num_workers", "synthetic_utterances")
        for name, least in {**dict.fromkeys(counts, 1), **dict.fromkeys(zero, 0)}.items():
            value = getattr(self, name)
            if value < least:
                raise ValueError(f"data.{name}={value} must be {least} or more; try {max(least, 1)}")
        if not (math.isfinite(self.max_batch_s) and self.max_batch_s > 0):
            raise ValueError(f"data.max_batch_s={self.max_batch_s} must be a positive number of seconds; try 60")
        if not self.prepared_dir.strip():
            raise ValueError(f"data.prepared_dir={self.prepared_dir!r} must name a folder; try prepared")
        self._check_corpus_options()

    def _check_corpus_options(self) -> None:
        if self.holdout_speaker is not None and self.corpus != Corpus.fsdd:
            raise ValueError(
                f"data.holdout_speaker={self.holdout_speaker} must be null for data.corpus={self.corpus}; "
                "try data=fsdd, the one corpus with leave-one-speaker-out"
            )
        if self.synthetic_utterances and self.corpus != Corpus.fsdd:
            raise ValueError(
                f"data.synthetic_utterances={self.synthetic_utterances} must be 0 for data.corpus={self.corpus}; "
                "only data=fsdd adds synthetic voices to its training"
            )
        if self.download and self.corpus not in DOWNLOADABLE:
            raise ValueError(
                f"data.download=true must be false for data.corpus={self.corpus}; "
                f"only {' and '.join(DOWNLOADABLE)} can be fetched"
            )
        if self.root is not None and self.corpus == Corpus.digits:
            raise ValueError(f"data.root={self.root} must be null for data.corpus=digits, which is synthesised")
