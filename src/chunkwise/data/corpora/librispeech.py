"""LibriSpeech and Mini LibriSpeech, through lhotse's recipe, from their own folder layout.

Layout: `LibriSpeech/train-clean-5/1088/134315/1088-134315.trans.txt` and the FLAC files that it lists; `data.root`
is the folder that holds `LibriSpeech`, or that folder itself. See https://www.openslr.org/12 and
https://www.openslr.org/31. Word times are kept where `*.alignment.txt` files stand beside the transcripts.
"""

import tarfile
from pathlib import Path

from lhotse import MonoCut
from lhotse.recipes import librispeech as recipe
from lhotse.supervision import AlignmentItem

from chunkwise.data.corpora.config import Corpus, DataConfig
from chunkwise.data.corpora.manifests import source_recording, utterance
from chunkwise.data.corpora.material import Material, MissingCorpusError, Setting, corpus_root, listing
from chunkwise.data.corpora.progress import track
from chunkwise.data.skips import Skip
from chunkwise.text.normalisation import normalise

RECIPE = 1

PARTS = {
    Corpus.mini_librispeech: {"train": ("train-clean-5",), "dev": ("dev-clean-2",), "test": ("dev-clean-2",)},
    Corpus.librispeech: {
        "train": ("train-clean-100", "train-clean-360", "train-other-500"),
        "dev": ("dev-clean", "dev-other"),
        "test": ("test-clean",),
        "test_other": ("test-other",),
    },
}
OPTIONAL_SPLITS = ("test_other",)
ONE_EVALUATION_PART = "mini_librispeech has one evaluation part: dev-clean-2 serves as dev and as test"
LAYOUT = "LibriSpeech/PART/SPEAKER/CHAPTER/*.trans.txt with FLAC files"
REMEDY = "set data.download=true, or get it from https://www.openslr.org/12 (mini: /31)"


def settings(config: DataConfig) -> dict[str, Setting]:
    """Everything that decides the manifests; fetches the corpus first where that is asked for."""
    if config.download:
        _download(config)
    folder = _corpus_folder(config)
    parts = sorted({part for present in _present(config, folder).values() for part in present})
    return {
        "recipe": RECIPE,
        "folder": str(folder),
        "parts": " ".join(parts),
        "files": listing(file for part in parts for file in sorted((folder / part).rglob("*.*"))),
    }


def prepare(config: DataConfig, folder: Path) -> Material:
    """The utterances; their audio stays where it is."""
    corpus = _corpus_folder(config)
    splits: dict[str, list[MonoCut]] = {}
    skipped: list[Skip] = []
    for split, parts in _present(config, corpus).items():
        splits[split] = []
        for part in parts:
            lines = _transcript_lines(corpus / part)
            for transcript, line in track(lines, f"reading {part}", len(lines)):
                made = _utterance(corpus / part, transcript, line, evaluated=split != "train")
                if isinstance(made, Skip):
                    skipped.append(made)
                else:
                    splits[split].append(made)
    notes = [ONE_EVALUATION_PART] if config.corpus == Corpus.mini_librispeech else []
    return Material(splits, skipped, notes)


def _utterance(part: Path, transcript: Path, line: str, evaluated: bool) -> MonoCut | Skip:
    name, _, text = line.strip().partition(" ")
    path = part.joinpath(*name.split("-")[:-1], f"{name}.flac")
    recording = source_recording(path, name, evaluated, whole=False)
    if isinstance(recording, Skip):
        return recording
    if not text.strip() and not evaluated:
        return Skip(name, f"{transcript} has no words for it")
    speaker = name.split("-")[0]
    if not text.strip() or recording.num_samples == 0:  # lhotse's recipe knows neither
        return utterance(recording, normalise(text), speaker)
    parsed = recipe.parse_utterance(part, line, {})
    assert parsed is not None, "the recording was found above"
    return utterance(parsed[0], normalise(text), speaker, _word_times(transcript, name))


def _word_times(transcript: Path, name: str) -> list[AlignmentItem] | None:
    path = transcript.with_name(transcript.name.replace(".trans.txt", ".alignment.txt"))
    if not path.exists():
        return None
    items = recipe.parse_alignments(path).get(name)
    return items and [item._replace(symbol=normalise(item.symbol)) for item in items if item.symbol]


def _transcript_lines(part: Path) -> list[tuple[Path, str]]:
    lines: list[tuple[Path, str]] = []
    for transcript in sorted(part.rglob("*.trans.txt")):
        try:
            text = transcript.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise ValueError(f"{transcript} is not UTF-8 text ({error}); save it as UTF-8") from error
        lines.extend((transcript, line) for line in text.splitlines() if line.strip())
    return lines


def _corpus_folder(config: DataConfig) -> Path:
    root = corpus_root(config, LAYOUT, REMEDY)
    return root / "LibriSpeech" if (root / "LibriSpeech").is_dir() else root


def _present(config: DataConfig, folder: Path) -> dict[str, list[str]]:
    """The parts of each split that are there: at least one, but for the optional splits."""
    present: dict[str, list[str]] = {}
    for split, parts in PARTS[config.corpus].items():
        found = [part for part in parts if (folder / part).is_dir()]
        if found:
            present[split] = found
        elif split not in OPTIONAL_SPLITS:
            raise MissingCorpusError(
                f"data.root={config.root!r} must hold {LAYOUT}, but {folder} has no {' or '.join(parts)} "
                f"for the {split} split; {REMEDY}"
            )
    return present


def _download(config: DataConfig) -> None:
    """Fetch the parts that are not there, or whose unpacking was interrupted."""
    if config.root is None:
        raise MissingCorpusError("data.root=None must name the folder to download to; try data.root=corpora")
    root = Path(config.root).expanduser().absolute()
    target = root.parent if root.name == "LibriSpeech" else root
    wanted = dict.fromkeys(part for parts in PARTS[config.corpus].values() for part in parts)
    missing = [part for part in wanted if not _is_unpacked(target, part)]
    try:
        if missing:
            recipe.download_librispeech(target, dataset_parts=missing)
    except (OSError, tarfile.TarError) as error:
        raise ConnectionError(
            f"data.download=true could not fetch {', '.join(missing)} into {target} ({error}); "
            "try again later, or unpack the archives from https://www.openslr.org there by hand"
        ) from error


def _is_unpacked(target: Path, part: str) -> bool:
    folder = target / "LibriSpeech" / part
    interrupted = (target / f"{part}.tar.gz").exists() and not (folder / ".completed").exists()
    return folder.is_dir() and not interrupted
