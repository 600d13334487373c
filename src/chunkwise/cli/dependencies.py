"""`chunkwise-dependencies`: which inputs encoder frames and tokens depend on, measured against what may be."""

from dataclasses import asdict
from pathlib import Path

from hydra.core.hydra_config import HydraConfig

from chunkwise.analysis.dependencies import Analysis, analyse
from chunkwise.analysis.pictures import draw_dependences
from chunkwise.analysis.report import describe, summarise, write_matrices
from chunkwise.cli.application import application
from chunkwise.cli.subject import Subject, load_subject
from chunkwise.config import DependenciesConfig, plain
from chunkwise.evaluation.typed_json import to_json, write_atomically
from chunkwise.models.context import fixed_context
from chunkwise.training.dashboard import WandbDashboard
from chunkwise.training.distributed import open_world
from chunkwise.training.log import WandbMode

JSON, MATRICES, PICTURE = "dependencies.json", "dependencies.npz", "dependencies.png"


def run(config: DependenciesConfig, folder: Path, command: str) -> None:
    """Measure, write everything down, and only then refuse what must not be."""
    context = fixed_context(config.chunking)
    hydra = HydraConfig.get()
    with open_world(config.runtime) as world:
        chosen = hydra.runtime.choices.get("data") is not None
        subject = load_subject(config, hydra.overrides.task, chosen, world)
        analysis = analyse(
            subject.model, subject.fbank, config.decoding, context, config.analysis, subject.waveform, config.seed
        )
    write(analysis, subject, config, folder)
    analysis.check()


def write(analysis: Analysis, subject: Subject, config: DependenciesConfig, folder: Path) -> None:
    """The matrices, the picture and the summary, also for W&B."""
    summary = summarise(analysis, config.analysis, subject.source, subject.spell)
    write_matrices(analysis, folder / MATRICES)
    shown = list(analysis.dependences.values())
    draw_dependences(folder / PICTURE, shown, f"{subject.source}, {analysis.context.label}")
    write_atomically(folder / JSON, to_json(asdict(summary)))
    print(f"{describe(summary)}\n{folder / JSON}")
    if config.logger.wandb is not WandbMode.disabled:
        settings = (str(config.logger.wandb), config.logger.project, config.logger.name)
        dashboard = WandbDashboard(folder, *settings, plain(config))
        dashboard.log({"step": 0, "violations": summary.violations, "lookahead": summary.measured_lookahead_samples})
        dashboard.show("dependencies", folder / PICTURE)
        dashboard.close(failed=summary.violations > 0)


main = application("dependencies", run)

if __name__ == "__main__":
    main()
