"""A corpus made ready: manifests (and, where it is made here, audio) in a folder of its own, reused next time."""

import gzip
import hashlib
import json
import os
import shutil
import socket
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from lhotse import CutSet, MonoCut

from chunkwise.data.corpora import digits, fsdd, librispeech, yesno
from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.manifests import check_unique, read_cuts, write_cuts
from chunkwise.data.corpora.material import Material, Setting
from chunkwise.data.skips import Skip

SUMMARY = "prepared.json"


@dataclass(frozen=True, slots=True)
class PreparedCorpus:
    """A corpus ready for training and evaluation."""

    folder: Path
    splits: dict[str, CutSet]  # train, dev, test; librispeech also has test_other
    skipped: list[Skip]  # recordings of the corpus that could not be used
    notes: list[str]  # what a reader of the results must know
    reused: bool  # whether an earlier preparation was found


@runtime_checkable
class Recipe(Protocol):
    """How one corpus is prepared: a module of this package."""

    def settings(self, config: DataConfig) -> dict[str, Setting]:
        """Everything that decides the prepared data; finds the corpus, and says so where it cannot."""
        ...

    def prepare(self, config: DataConfig, folder: Path) -> Material:
        """The splits, with whatever audio is made for them written below `folder`."""
        ...


def prepare_corpus(config: DataConfig) -> PreparedCorpus:
    """The corpus that `config` names, prepared now or found prepared with the same settings.

    The folder's name holds a fingerprint of everything that decides its contents, and the folder appears
    complete or not at all. Relative paths count from the folder where the program was started.
    """
    recipe = _recipe(config.corpus)
    settings = {"corpus": config.corpus.value, **recipe.settings(config)}
    folder = Path(config.prepared_dir).expanduser().absolute() / f"{config.corpus}-{fingerprint(settings)}"
    reused = folder.exists()
    if not reused:
        with _appearing_whole(folder) as partial:
            _write(partial, recipe.prepare(config, partial), settings)
    return _read(folder, reused)


def fingerprint(settings: dict[str, Setting]) -> str:
    """Twelve hexadecimal digits that differ wherever the settings do.

    >>> fingerprint({"seed": 0}) == fingerprint({"seed": 0}) != fingerprint({"seed": 1})
    True
    """
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:12]


def _recipe(corpus: Corpus) -> Recipe:
    match corpus:
        case Corpus.digits:
            return digits
        case Corpus.fsdd:
            return fsdd
        case Corpus.yesno:
            return yesno
        case Corpus.mini_librispeech | Corpus.librispeech:
            return librispeech


def _write(folder: Path, material: Material, settings: dict[str, Setting]) -> None:
    for split, cuts in material.splits.items():
        if not cuts:
            raise ValueError(
                f"data.corpus={settings['corpus']}: no utterance is left for the {split} split "
                f"({len(material.skipped)} skipped{_first_reason(material.skipped)}); check data.root"
            )
        check_unique(cuts, split)
        write_cuts(cuts, folder / f"{split}.jsonl.gz")
    summary = {
        "settings": settings,
        "splits": {split: _totals(cuts) for split, cuts in material.splits.items()},
        "skipped": [asdict(skip) for skip in material.skipped],
        "notes": material.notes,
    }
    (folder / SUMMARY).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _first_reason(skipped: list[Skip]) -> str:
    return f", the first because {skipped[0].reason}" if skipped else ""


def _totals(cuts: list[MonoCut]) -> dict[str, float]:
    return {"utterances": len(cuts), "seconds": round(sum(cut.duration for cut in cuts), 3)}


def _read(folder: Path, reused: bool) -> PreparedCorpus:
    try:
        summary = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
        splits = {split: read_cuts(folder / f"{split}.jsonl.gz", folder) for split in summary["splits"]}
    except (
        FileNotFoundError,
        EOFError,
        gzip.BadGzipFile,
        zlib.error,
        json.JSONDecodeError,
        UnicodeDecodeError,
    ) as error:
        raise ValueError(f"{folder} is damaged ({error}); delete it, and it will be prepared again") from error
    for split, cuts in splits.items():
        expected = summary["splits"][split]["utterances"]
        if len(cuts) != expected:
            raise ValueError(
                f"{folder}: {split}.jsonl.gz holds {len(cuts)} of {expected} utterances; delete the folder"
            )
    skipped = [Skip(**skip) for skip in summary["skipped"]]
    return PreparedCorpus(folder, splits, skipped, summary["notes"], reused)


@contextmanager
def _appearing_whole(folder: Path) -> Iterator[Path]:
    """A folder to write into, which takes its real name only once it is complete."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder)
    partial = folder.with_name(f".{folder.name}.{socket.gethostname()}.{os.getpid()}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        try:
            partial.rename(folder)
        except OSError:  # another process may have been faster; its folder holds the same
            if not folder.exists():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _remove_abandoned(folder: Path) -> None:
    """Clear what processes of this machine left behind when they were killed."""
    for partial in folder.parent.glob(f".{folder.name}.{socket.gethostname()}.*.partial"):
        process = partial.name.split(".")[-2]
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(partial, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
