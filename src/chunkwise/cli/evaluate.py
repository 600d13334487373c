"""`chunkwise-evaluate`: word error rates of a checkpoint in one context or in a grid, or two evaluations compared."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from chunkwise.cli import assembly
from chunkwise.cli.application import application
from chunkwise.cli.outcome import report_comparison, report_evaluations
from chunkwise.config import EvaluateConfig, changed_data
from chunkwise.data.corpora.config import DataConfig
from chunkwise.evaluation.evaluate import evaluate_contexts
from chunkwise.evaluation.journal import Journal
from chunkwise.evaluation.streamed import describe_streams
from chunkwise.models.context import ChunkContext, fixed_context
from chunkwise.training.distributed import open_world
from chunkwise.training.launching import launch


def run(config: EvaluateConfig, folder: Path, command: str) -> None:
    """Compare, or evaluate in as many processes as asked for."""
    if config.compare:
        print(report_comparison(folder, *map(Path, config.compare)))
        return
    contexts_of(config)
    _, trained = assembly.load_trained(config.checkpoint)
    chosen = HydraConfig.get().runtime.choices.get("data") is not None
    launch(config.runtime, evaluate_on_rank, config, changed_data(trained.data, config.data, chosen), folder)


def contexts_of(config: EvaluateConfig) -> list[ChunkContext]:
    """The contexts of the grid, or the one."""
    return config.eval.contexts.contexts or [fixed_context(config.chunking)]


def evaluate_on_rank(config: EvaluateConfig, data: DataConfig, folder: Path) -> None:
    """Evaluate as one rank; rank 0 writes the results into the folder."""
    contexts, setting = contexts_of(config), config.eval
    checkpoint, trained = assembly.load_trained(config.checkpoint)
    with open_world(config.runtime) as world:
        recogniser = assembly.load_recogniser(checkpoint, trained, config.decoding, world.device)
        splits = assembly.shared_corpus(data, world).splits
        if (cuts := splits.get(setting.split)) is None:
            raise ValueError(f"eval.split={setting.split} is none of {data.corpus}'s splits: {', '.join(splits)}")
        streams = [describe_streams(recogniser, context, setting) for context in contexts]
        facts = [assembly.checksum(config.checkpoint), config.decoding, contexts, assembly.git_state()[0]]
        journal = Journal(folder, f"{facts} {setting.path} {setting.piece_ms}")
        results = evaluate_contexts(recogniser, cuts, contexts, setting, world, journal=journal)
        if world.is_main:
            subject, found = f"{data.corpus} {setting.split}", dict(zip(contexts, results, strict=True))
            print(report_evaluations(folder, subject, setting, found, streams, recogniser.tokenizer))
            journal.discard()


main = application("evaluate", run)

if __name__ == "__main__":
    main()
