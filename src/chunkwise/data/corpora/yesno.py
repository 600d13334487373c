"""YesNo: one speaker says eight words a file, each yes or no; the file's name is its transcript.

Layout: `waves_yesno/1_0_1_1_1_0_1_0.wav`, 1 = yes, see https://www.openslr.org/1. As in lhotse's recipe, the sorted
files are train and test in turn; every sixth file of train serves dev. lhotse's own function is not called because
it asserts that exactly sixty files are there and leaves dev out.
"""

import re
from pathlib import Path

from lhotse import MonoCut

from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.corpora.manifests import source_recording, utterance
from chunkwise.data.corpora.material import Material, MissingCorpusError, Setting, contents, corpus_root
from chunkwise.data.skips import Skip

RECIPE = 1
NAME = re.compile(r"[01](_[01])*")
WORDS = {"0": "no", "1": "yes"}
DEV_EVERY = 6
LAYOUT = "waves_yesno/1_0_1_1_1_0_1_0.wav and so on (OpenSLR resource 1)"
REMEDY = "get it from https://www.openslr.org/1"


def settings(config: DataConfig) -> dict[str, Setting]:
    """Everything that decides the manifests."""
    files = _files(config)
    return {"recipe": RECIPE, "folder": str(files[0].parent), "files": contents(files)}


def prepare(config: DataConfig, folder: Path) -> Material:
    """The utterances; their audio stays where it is."""
    splits: dict[str, list[MonoCut]] = {"train": [], "dev": [], "test": []}
    skipped: list[Skip] = []
    for number, file in enumerate(_files(config)):
        split = split_of(number)
        recording = source_recording(file, file.stem, evaluated=split != "train")
        if isinstance(recording, Skip):
            skipped.append(recording)
        else:
            text = " ".join(WORDS[word] for word in file.stem.split("_"))
            splits[split].append(utterance(recording, text, speaker="yesno"))
    return Material(splits, skipped)


def split_of(number: int) -> str:
    """The split of the file at this place in the sorted list.

    >>> [split_of(number) for number in range(12)].count("train")
    5
    """
    if number % 2:
        return "test"
    return "dev" if (number // 2) % DEV_EVERY == DEV_EVERY - 1 else "train"


def _files(config: DataConfig) -> list[Path]:
    root = corpus_root(config, LAYOUT, REMEDY)
    below = root / "waves_yesno"
    files = sorted(file for file in (below if below.is_dir() else root).glob("*.wav") if NAME.fullmatch(file.stem))
    if not files:
        raise MissingCorpusError(f"data.root={config.root!r} must hold {LAYOUT}, but has no such file; {REMEDY}")
    return files
