"""`chunkwise-evaluate`: word error rates of a checkpoint in one context."""

from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from chunkwise.cli import assembly
from chunkwise.cli.application import application
from chunkwise.config import EvaluateConfig, changed_data
from chunkwise.data.corpora.config import DataConfig
from chunkwise.evaluation.config import EvalPath
from chunkwise.evaluation.evaluate import evaluate_contexts
from chunkwise.evaluation.journal import Journal
from chunkwise.evaluation.results import write_evaluation
from chunkwise.evaluation.streamed import describe_streams, show_latency
from chunkwise.evaluation.tables import show_rate
from chunkwise.models.context import fixed_context
from chunkwise.training.distributed import open_world
from chunkwise.training.launching import launch


def run(config: EvaluateConfig, folder: Path, command: str) -> None:
    """Evaluate in as many processes as asked for."""
    fixed_context(config.chunking)
    _, trained = assembly.load_trained(config.checkpoint)
    chosen = HydraConfig.get().runtime.choices.get("data") is not None
    launch(config.runtime, evaluate_on_rank, config, changed_data(trained.data, config.data, chosen), folder)


def evaluate_on_rank(config: EvaluateConfig, data: DataConfig, folder: Path) -> None:
    """Evaluate as one rank; rank 0 writes `metrics.json` and `hypotheses.jsonl` into the folder."""
    context, streams = fixed_context(config.chunking), None
    checkpoint, trained = assembly.load_trained(config.checkpoint)
    with open_world(config.runtime) as world:
        recogniser = assembly.load_recogniser(checkpoint, trained, config.decoding, world.device)
        splits = assembly.shared_corpus(data, world).splits
        if (cuts := splits.get(config.eval.split)) is None:
            raise ValueError(f"eval.split={config.eval.split} is none of {data.corpus}'s splits: {', '.join(splits)}")
        if config.eval.path is EvalPath.streaming:
            streams = describe_streams(recogniser, context, config.eval.piece_ms, config.eval.max_batch_utterances)
        facts = [assembly.checksum(config.checkpoint), config.decoding, context, assembly.git_state()[0]]
        journal = Journal(folder, f"{facts} {config.eval.path} {config.eval.piece_ms}")
        [result] = evaluate_contexts(recogniser, cuts, [context], config.eval, world, journal=journal)
        if world.is_main:
            write_evaluation(folder, result, streams)
            journal.discard()
            counts = result.counts
            print(
                f"{data.corpus} {config.eval.split}, {context.label}: WER {show_rate(counts.wer)} "
                f"({counts.substitutions} substitutions, {counts.deletions} deletions, {counts.insertions} insertions "
                f"in {counts.words} words of {counts.utterances} utterances)\n{folder / 'metrics.json'}"
            )
            if result.latency is not None:
                print(f"{show_latency(result.latency, streams)}\n{folder / 'latency.json'}")


main = application("evaluate", run)

if __name__ == "__main__":
    main()
