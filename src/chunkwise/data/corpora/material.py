"""What a corpus module hands over: splits of utterances, and what it left out."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from lhotse import MonoCut

from chunkwise.data.corpora.config import DataConfig
from chunkwise.data.skips import Skip

Setting = str | int | float | bool | None
"""A value that decides what is prepared; it enters the prepared folder's fingerprint."""


@dataclass(frozen=True, slots=True)
class Material:
    """The utterances of a corpus by split."""

    splits: dict[str, list[MonoCut]]
    skipped: list[Skip] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class MissingCorpusError(FileNotFoundError):
    """A corpus that is not where the config says."""


def corpus_root(config: DataConfig, layout: str, remedy: str) -> Path:
    """The folder that `data.root` names, or one sentence on what it must hold and where to get it."""
    if config.root is None or not config.root.strip():
        raise MissingCorpusError(f"data.root={config.root!r} must name a folder that holds {layout}; {remedy}")
    root = Path(config.root).expanduser().absolute()
    if not root.is_dir():
        state = "is a file" if root.exists() else "does not exist"
        raise MissingCorpusError(f"data.root={config.root!r} must hold {layout}, but {root} {state}; {remedy}")
    return root


def listing(files: Iterable[Path]) -> str:
    """A digest of the files' names and sizes: it changes when a big corpus is completed or repaired."""
    return _digest(f"{file.name}\0{file.stat().st_size}\n".encode("utf-8", "surrogateescape") for file in files)


def contents(files: Iterable[Path]) -> str:
    """A digest of the files' names and bytes, for a corpus of a few megabytes."""
    return _digest(
        file.name.encode("utf-8", "surrogateescape") + b"\0" + hashlib.sha256(file.read_bytes()).digest()
        for file in files
        if file.is_file()
    )


def _digest(entries: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for entry in entries:
        digest.update(entry)
    return digest.hexdigest()[:16]
