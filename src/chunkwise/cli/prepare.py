"""`chunkwise-prepare`: make a corpus's manifests (and its audio, where it is synthesised)."""

from pathlib import Path

from chunkwise.cli.application import application
from chunkwise.cli.assembly import describe_corpus
from chunkwise.config import PrepareConfig
from chunkwise.data.corpora.prepare import prepare_corpus


def run(config: PrepareConfig, folder: Path, command: str) -> None:
    """Prepare the corpus, or find it prepared, and say what it holds."""
    print(describe_corpus(prepare_corpus(config.data)))


main = application("prepare", run)

if __name__ == "__main__":
    main()
