"""The composed configs of every command, their Hydra schema, and the way from YAML to frozen dataclasses."""

from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from hydra.core.config_store import ConfigStore
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from chunkwise.analysis.dependencies import DependencyConfig
from chunkwise.audio.augmentation import AugmentConfig
from chunkwise.audio.fbank import FbankConfig
from chunkwise.data.corpora.config import DataConfig
from chunkwise.decoding.search import DecodingConfig
from chunkwise.evaluation.config import EvalConfig
from chunkwise.losses.config import LossConfig
from chunkwise.models.conformer import EncoderConfig
from chunkwise.models.context import ChunkingConfig
from chunkwise.models.joiner import JoinerConfig
from chunkwise.models.normalisation import NormalisationConfig
from chunkwise.models.predictor import PredictorConfig
from chunkwise.text.tokenizer import TokenizerConfig
from chunkwise.training.log import LoggerConfig
from chunkwise.training.loop import TrainingConfig
from chunkwise.training.optimizer import OptimizerConfig, ScheduleConfig
from chunkwise.training.precision import PrecisionConfig
from chunkwise.training.runtime import RuntimeConfig

Config = TypeVar("Config")

GROUPS = {
    "data": "the corpus and how its utterances are batched",
    "features": "the filter bank",
    "normalisation": "by the training set's statistics alone, or by a running mean too",
    "augment": "SpecAugment and speed perturbation",
    "tokenizer": "characters, words or SentencePiece units",
    "encoder": "the Conformer's shape: streaming or full, and its size",
    "chunking": "chunk size and left context, or in training their distribution",
    "predictor": "stateless or LSTM prediction network",
    "loss": "full or pruned transducer loss (by k2 or native), with auxiliary CTC",
    "precision": "fp32, bf16 or fp16 (with a tunable gradient scaler)",
    "eval": "single or sharded over all ranks",
    "decoding": "greedy or beam search",
    "optimizer": "AdamW",
    "schedule": "the learning rate over steps",
    "logger": "W&B offline, online or not at all",
    "runtime": "processes, threads and device",
    "experiment": "a named recipe: a few changes on top of the defaults",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareConfig:
    """`chunkwise-prepare`: make a corpus's manifests (and its audio, where it is synthesised)."""

    data: DataConfig = field(default_factory=DataConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    """`chunkwise-train`: train a Conformer-Transducer, validating as it goes."""

    seed: int = 0
    resume: bool = False  # go on from the run folder's newest checkpoint
    data: DataConfig = field(default_factory=DataConfig)
    features: FbankConfig = field(default_factory=FbankConfig)
    normalisation: NormalisationConfig = field(default_factory=NormalisationConfig)
    augment: AugmentConfig = field(default_factory=AugmentConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    joiner: JoinerConfig = field(default_factory=JoinerConfig)
    loss: LossConfig = field(default_factory=LossConfig)
    precision: PrecisionConfig = field(default_factory=PrecisionConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        """Refuse what no single group can see."""
        if self.schedule.by_time and self.training.max_seconds is None:
            raise ValueError("schedule.by_time=true needs a time to end at; set training.max_seconds, e.g. 600")
        if self.eval.contexts.contexts:
            raise ValueError(
                "eval.contexts is a grid for chunkwise-evaluate, and training validates in the contexts of chunking=; "
                "leave it out, and evaluate the run afterwards"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class DataChanges(DataConfig):
    """What an evaluation's data changes of the training run's; checked once both are put together."""

    def __post_init__(self) -> None:
        """A change by itself is neither right nor wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    """`chunkwise-evaluate`: word error rates of a checkpoint in one context or in a grid, or two compared."""

    checkpoint: str | None = None  # a run folder or a checkpoint file
    compare: list[str] = field(default_factory=list)  # instead: two evaluations' folders or hypotheses.jsonl
    data: DataChanges = field(default_factory=DataChanges)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        """Refuse what no single group can see."""
        grid = self.eval.contexts.contexts
        if grid and self.chunking != ChunkingConfig():
            raise ValueError(
                f"eval.contexts holds every context of its grid, so chunking={self.chunking.kind} says nothing; "
                "leave one of them out"
            )
        if self.compare and len(self.compare) != 2:
            raise ValueError(
                f"compare=[{','.join(self.compare)}] must name two evaluations, each by its folder or its "
                "hypotheses.jsonl; try compare=[A,B]"
            )
        if self.compare and (self.checkpoint is not None or grid):
            other = "eval.contexts" if self.checkpoint is None else f"checkpoint={self.checkpoint}"
            raise ValueError(f"compare reads what was evaluated before, and {other} evaluates; give one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """`chunkwise-stream`: recognise one recording chunk by chunk, with carried state."""

    checkpoint: str | None = None  # a run folder or a checkpoint file
    audio: str | None = None  # the recording
    piece_ms: float = 100.0  # how much audio arrives at a time
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        if not self.piece_ms > 0:
            raise ValueError(f"piece_ms={self.piece_ms} must be above 0; try 100")


@dataclass(frozen=True, slots=True, kw_only=True)
class DependenciesConfig:
    """`chunkwise-dependencies`: which inputs encoder frames and tokens depend on, measured against what may be."""

    seed: int = 0
    checkpoint: str | None = None  # a run folder or a checkpoint file; null: random weights of the shape below
    audio: str | None = None  # a recording; null: an utterance or noise
    utterance: str | None = None  # of the model's test set: its id, or `first`; null: noise
    analysis: DependencyConfig = field(default_factory=DependencyConfig)
    data: DataChanges = field(default_factory=DataChanges)
    chunking: ChunkingConfig = field(default_factory=ChunkingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    features: FbankConfig = field(default_factory=FbankConfig)
    normalisation: NormalisationConfig = field(default_factory=NormalisationConfig)
    encoder: EncoderConfig = field(default_factory=EncoderConfig)
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    joiner: JoinerConfig = field(default_factory=JoinerConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)

    def __post_init__(self) -> None:
        if self.audio is not None and self.utterance is not None:
            raise ValueError(f"audio={self.audio} and utterance={self.utterance} exclude each other; give one")
        if self.utterance is not None and self.checkpoint is None:
            raise ValueError(
                f"utterance={self.utterance} needs a checkpoint, whose test set holds it; or use audio=FILE"
            )


COMMANDS: dict[str, type] = {
    "prepare": PrepareConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "stream": StreamConfig,
    "dependencies": DependenciesConfig,
}


def schema(cls: type) -> DictConfig:
    """A frozen dataclass as a typed node that Hydra may still merge YAML into."""
    node = OmegaConf.structured(cls)
    OmegaConf.set_readonly(node, False)
    for name, hint in get_type_hints(cls).items():
        if is_dataclass(hint) and isinstance(hint, type):
            node[name] = schema(hint)
    return node


def register() -> None:
    """Make the schemas and the help texts known to Hydra."""
    store = ConfigStore.instance()
    for command, cls in COMMANDS.items():
        store.store(name=f"{command}_schema", node=schema(cls))
        store.store(group="hydra/help", name=f"chunkwise_{command}", node=_help(command, cls))


def conf_dir() -> str:
    """The folder of the YAML groups: inside an installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "conf"
    return str(installed if installed.is_dir() else package.parents[1] / "conf")


def read(cls: type[Config], node: DictConfig) -> Config:
    """The frozen, validated config of a composed node; every key must be one that the schema knows."""
    try:
        values = DictConfig(OmegaConf.to_container(node, resolve=True))
        unknown, missing = _unknown_keys(values, cls, ""), sorted(OmegaConf.missing_keys(values))
        if unknown:
            raise ValueError(f"unknown option{'s' if len(unknown) > 1 else ''}: {', '.join(unknown)}; see --help")
        if missing:
            raise ValueError(f"no value for {', '.join(missing)}; set it on the command line")
        value = OmegaConf.to_object(OmegaConf.merge(schema(cls), values))
    except OmegaConfBaseException as error:
        raise ValueError(
            f"{getattr(error, 'full_key', None) or 'config'}: {str(error.msg or error).splitlines()[0]}"
        ) from error
    assert isinstance(value, cls)
    return value


def restore(values: dict[str, Any]) -> TrainConfig:
    """The training config that a checkpoint keeps."""
    return read(TrainConfig, OmegaConf.create(values))


def plain(config: Any) -> dict[str, Any]:
    """A config as plain dicts, lists, numbers and strings."""
    container = OmegaConf.to_container(OmegaConf.create(asdict(config)), enum_to_str=True)
    assert isinstance(container, dict)
    return {str(key): value for key, value in container.items()}


def to_yaml(config: Any) -> str:
    """A config as YAML."""
    return OmegaConf.to_yaml(OmegaConf.create(plain(config)))


def changed_data(trained: DataConfig, given: DataChanges, chosen: bool) -> DataConfig:
    """The data of an evaluation: the given group where one was chosen, else the training run's with what was given."""
    values, defaults = ({f.name: getattr(data, f.name) for f in fields(DataConfig)} for data in (given, DataChanges()))
    if chosen:
        return DataConfig(**values)
    return replace(trained, **{name: value for name, value in values.items() if value != defaults[name]})


def _unknown_keys(node: DictConfig, cls: type, prefix: str) -> list[str]:
    hints = get_type_hints(cls)
    unknown = [f"{prefix}{key}" for key in node if key not in hints]
    for name, hint in hints.items():
        if is_dataclass(hint) and isinstance(hint, type) and isinstance(node.get(name), DictConfig):
            unknown += _unknown_keys(node[name], hint, f"{prefix}{name}.")
    return unknown


def _help(command: str, cls: type) -> dict[str, str]:
    names = [name for name in get_type_hints(cls) if name in GROUPS]
    names += ["experiment"] if command == "train" else []
    width = max(map(len, names))
    groups = "\n".join(f"  {name:<{width}}  {GROUPS[name]} ({', '.join(_options(name))})" for name in names)
    options = "\n".join(f"  {option}" for option in _own_options(cls))
    return {
        "app_name": f"chunkwise-{command}",
        "header": (cls.__doc__ or "").strip(),
        "footer": "Any key of the config below can be set as key=value; --multirun sweeps over comma-separated values.",
        "template": (
            "${hydra.help.header}\n\nGroups (choose with group=option):\n"
            f"{groups}\n\nOwn options:\n{options or '  none'}\n  hydra.run.dir=FOLDER\n\n"
            "${hydra.help.footer}\n\n$CONFIG"
        ),
    }


def _options(group: str) -> list[str]:
    return sorted(path.stem for path in Path(conf_dir(), group).glob("*.yaml"))


def _own_options(cls: type, prefix: str = "") -> list[str]:
    """The keys that belong to no group, with their defaults."""
    options = []
    for name, hint in get_type_hints(cls).items():
        if is_dataclass(hint) and isinstance(hint, type):
            options += [] if name in GROUPS else _own_options(hint, f"{prefix}{name}.")
        else:
            default = next(f.default for f in fields(cls) if f.name == name)
            options.append(f"{prefix}{name}={'null' if default is None else str(default).lower()}")
    return options
