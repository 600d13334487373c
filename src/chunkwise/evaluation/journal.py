"""What an evaluation has decoded so far, kept on disk, so that one that was cut off goes on where it was.

Every rank appends the counts of each batch it has finished to a file of its own. Whoever starts again, with any
number of ranks, reads all of them and decodes only the rest. What answers another question (another model, search,
context or path), or an utterance that has changed since, is decoded anew; so is a batch whose line was cut.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from lhotse.cut import Cut

from chunkwise.data.loading import transcript
from chunkwise.evaluation.tally import Tally
from chunkwise.evaluation.typed_json import write_atomically
from chunkwise.typing import World

UNFINISHED = ".unfinished"
"""The folder in an evaluation's folder that holds what is done while it is not complete."""


@dataclass(slots=True)
class Journal:
    """The finished batches of one evaluation; `question` tells all that its answers depend on but the utterances."""

    results: Path  # the evaluation's folder
    question: str
    _stamps: dict[str, str] = field(default_factory=dict, init=False)

    @property
    def folder(self) -> Path:
        """The folder that the journal has for itself, and removes."""
        return self.results / UNFINISHED

    def resume(self, cuts: Mapping[str, Cut], contexts: int, world: World) -> tuple[list[Tally], set[str]]:
        """What was counted before, one tally per context (on rank 0, empty elsewhere), and whose utterances it is.

        Every rank calls this before any appends.
        """
        tallies = [Tally() for _ in range(contexts)]
        self._stamps = {id: _stamp(cut) for id, cut in cuts.items()}
        done = set[str]()
        if world.is_main:
            self._forget_other_questions()
            lines = [json.dumps(entry, ensure_ascii=False) + "\n" for entry in self._usable(tallies, done)]
            write_atomically(self.folder / "finished.jsonl", "".join(lines))
            for path in self.folder.glob("rank-*.jsonl"):  # only now: what is done stands in one of the two at any time
                path.unlink()
            if done:
                print(f"{len(done)} of {len(cuts)} utterances were decoded before; going on with the rest", flush=True)
        return tallies, set(json.loads(world.share_text(json.dumps(sorted(done)))))

    def append(self, ids: Sequence[str], tallies: Sequence[Tally], rank: int) -> None:
        """Keep a finished batch."""
        entry = {"utterances": {id: self._stamps[id] for id in ids}, "tallies": [tally.to_text() for tally in tallies]}
        with (self.folder / f"rank-{rank}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")

    def discard(self) -> None:
        """Forget everything, once the results are written."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _forget_other_questions(self) -> None:
        question = self.folder / "question.txt"
        if not question.is_file() or question.read_text(encoding="utf-8") != self.question:
            self.discard()
            write_atomically(question, self.question)

    def _usable(self, tallies: list[Tally], done: set[str]) -> list[dict[str, object]]:
        """The entries of utterances as they are now, each utterance once; they are added to `tallies` and `done`."""
        entries = []
        for path in sorted(self.folder.glob("*.jsonl")):
            for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                try:
                    entry = json.loads(line)
                    stamps, counted = entry["utterances"], [Tally.from_text(text) for text in entry["tallies"]]
                except (ValueError, KeyError, TypeError):
                    continue  # cut off while it was written
                known = all(self._stamps.get(id) == stamp for id, stamp in stamps.items())
                if known and done.isdisjoint(stamps):
                    for total, part in zip(tallies, counted, strict=True):
                        total.include(part)
                    done.update(stamps)
                    entries.append(entry)
        return entries


def _stamp(cut: Cut) -> str:
    """Changes with the utterance's transcript, its place in the recording, and the recording's file."""
    facts: list[object] = [cut.id, transcript(cut), cut.duration, getattr(cut, "start", None)]
    recording = getattr(cut, "recording", None)
    for source in () if recording is None else recording.sources:
        facts.append(str(source.source))
        if source.type == "file" and Path(source.source).is_file():
            status = Path(source.source).stat()
            facts += [status.st_size, status.st_mtime_ns]
    return sha256(json.dumps(facts, default=str).encode()).hexdigest()[:16]
