"""`chunkwise-train`: train a Conformer-Transducer, validating as it goes."""

from pathlib import Path

from chunkwise.cli.application import application
from chunkwise.cli.rank import train_on_rank
from chunkwise.config import TrainConfig
from chunkwise.losses.backend import refuse_missing_k2
from chunkwise.training.checkpoint import LAST, PREVIOUS
from chunkwise.training.launching import launch


def run(config: TrainConfig, folder: Path, command: str) -> None:
    """Train in as many processes as asked for."""
    begun = any((folder / "checkpoints" / name).exists() for name in (LAST, PREVIOUS))
    if begun and not config.resume:
        raise ValueError(
            f"hydra.run.dir={folder} already holds a run; go on with resume=true, or choose another folder"
        )
    refuse_missing_k2(config.loss)
    launch(config.runtime, train_on_rank, config, folder, command)


main = application("train", run)

if __name__ == "__main__":
    main()
