"""`make demo`: train on the embedded corpus, evaluate in full context and in chunks, stream a recording, report."""

from pathlib import Path
from typing import cast

import torch
from hydra import compose, initialize_config_dir

from chunkwise.cli import assembly, train
from chunkwise.cli.application import one_sentence_errors
from chunkwise.cli.evaluate import evaluate_on_rank
from chunkwise.cli.stages import Stages
from chunkwise.cli.stream import stream
from chunkwise.config import EvaluateConfig, TrainConfig, conf_dir, plain, read, register
from chunkwise.data.corpora.prepare import prepare_corpus
from chunkwise.data.loading import listed, load_waveform, transcript
from chunkwise.evaluation.hypotheses import read_hypotheses
from chunkwise.evaluation.plots import plot_spectrogram
from chunkwise.evaluation.report import Report, StreamedTranscript, hardest_utterances, write_report
from chunkwise.evaluation.run_folder import RunFacts, StoredMetrics, evaluation_folder
from chunkwise.evaluation.tables import show_rate
from chunkwise.evaluation.typed_json import read_json
from chunkwise.models.context import ENCODER_FRAME_MS, FULL, ChunkContext, ChunkingConfig, ChunkingKind
from chunkwise.streaming.latency import Latency
from chunkwise.streaming.session import Transcript
from chunkwise.typing import Seconds

FOLDER = Path("runs/demo")
STREAMED = ChunkContext(16, None)
CONTEXTS = [FULL, ChunkContext(32, None), STREAMED, ChunkContext(8, None)]


def main() -> None:
    """Run every stage that is not done yet, then write the report."""
    with one_sentence_errors(raise_again=False):
        config = demo_config()
        done = (FOLDER / "run.json").exists() and RunFacts.read(FOLDER).config == plain(config)
        stages = Stages(FOLDER, resumed=done)
        stages.run("prepare", lambda: print(assembly.describe_corpus(prepare_corpus(config.data))), reuse=False)
        stages.run("train", lambda: train.run(config, FOLDER, "make demo"), reuse=done)
        for context in CONTEXTS:
            made = [evaluation_folder(FOLDER, "test", context) / name for name in ("report.html", "metrics.json")]
            trained_at = (FOLDER / "run.json").stat().st_mtime
            fresh = all(file.exists() and file.stat().st_mtime > trained_at for file in made)
            stages.run(f"evaluate {context.label}", lambda context=context: evaluate(config, context), reuse=fresh)
        streamed = stages.run("stream", lambda: stream_one(config), reuse=False)
        report(config, stages.total_s, cast(StreamedTranscript, streamed))


def demo_config() -> TrainConfig:
    """The recipe for the embedded corpus, as `chunkwise-train experiment=digits_streaming` composes it."""
    register()
    with initialize_config_dir(conf_dir(), version_base="1.3"):
        return read(TrainConfig, compose("train", ["experiment=digits_streaming", "resume=true"]))


def evaluate(config: TrainConfig, context: ChunkContext) -> None:
    """Word error rates on the test set in one context."""
    chunking = ChunkingConfig(
        kind=ChunkingKind.full if context == FULL else ChunkingKind.fixed,
        chunk_frames=context.chunk_frames,
        left_chunks=context.left_chunks,
    )
    settings = EvaluateConfig(checkpoint=str(FOLDER), chunking=chunking)
    evaluate_on_rank(settings, config.data, evaluation_folder(FOLDER, "test", context))


def stream_one(config: TrainConfig) -> StreamedTranscript:
    """Stream the test set's longest recording in pieces of 100 ms, and draw when each token came."""
    checkpoint, trained = assembly.load_trained(str(FOLDER))
    recogniser = assembly.load_recogniser(checkpoint, trained, config.decoding, torch.device("cpu"))
    cut = max(listed(prepare_corpus(config.data).splits["test"]), key=lambda cut: (cut.duration, cut.id))
    rate_hz = config.features.sample_rate_hz
    waveform = load_waveform(cut, rate_hz)
    partials: list[tuple[float, str]] = []

    def show(heard_s: Seconds, partial: Transcript) -> None:
        partials.append((heard_s, partial.text))

    final = stream(recogniser, STREAMED, (waveform, rate_hz), 100.0, show, Latency())
    features, lengths = recogniser.fbank(waveform[None], torch.tensor([len(waveform)]))
    frame_s = ENCODER_FRAME_MS / 1000
    pieces = [recogniser.tokenizer.decode([token]) or "␣" for token in final.tokens]
    emissions = [((frame + 1) * frame_s, piece) for frame, piece in zip(final.frames, pieces, strict=True)]
    chunk_ms = 1000 * frame_s * (STREAMED.chunk_frames or 0)
    title = f"{cut.id}: {final.text}"
    plot_spectrogram(
        FOLDER / "spectrogram.png", features[0, : int(lengths[0])], config.features, emissions, title, chunk_ms
    )
    return StreamedTranscript(name=cut.id, reference=transcript(cut), partials=partials, final=final.text)


def report(config: TrainConfig, total_s: float, streamed: StreamedTranscript) -> None:
    """Write `report.md` and `summary.json`, and print the error rates."""
    facts = RunFacts.read(FOLDER)
    folders = {context.label: evaluation_folder(FOLDER, "test", context) for context in CONTEXTS}
    errors = {label: read_json(StoredMetrics, folder / "metrics.json").counts for label, folder in folders.items()}
    contents = Report(
        title="Chunkwise on the embedded digits",
        summary=f"A streaming Conformer-Transducer, trained on {facts.train_hours:.1f} hours of synthesised digit "
        f"strings ({facts.device}), tested on voices that it has not heard.",
        errors=errors,
        pages={label: folder / "report.html" for label, folder in folders.items()},
        curve=FOLDER / "training_curve.png",
        spectrogram=FOLDER / "spectrogram.png",
        streamed=streamed,
        hardest=hardest_utterances(read_hypotheses(folders["full"])),
        parameters=facts.parameters,
        train_s=facts.train_s,
        total_s=total_s,
    )
    write_report(FOLDER, contents)
    for label, counts in errors.items():
        print(f"test WER {label:>7}: {show_rate(counts.wer)}")
    print(f"report: {FOLDER / 'report.md'}   summary: {FOLDER / 'summary.json'}")


if __name__ == "__main__":
    main()
