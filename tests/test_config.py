"""Every YAML composes, and every planted typo is refused by the name of its key or file."""

import shutil
from dataclasses import fields
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from chunkwise import config as configs
from chunkwise.config import COMMANDS, GROUPS, TrainConfig, conf_dir, plain, read, register, restore, to_yaml
from chunkwise.data.corpora.config import Corpus, DataConfig

CONF = Path(conf_dir())
OPTIONS = [(group, path.stem) for group in GROUPS for path in sorted((CONF / group).glob("*.yaml"))]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """A copy of the configs, to plant faults in."""
    return Path(shutil.copytree(CONF, tmp_path / "conf"))


@pytest.fixture(autouse=True)
def _registered() -> None:
    register()
    return


def composed(*overrides: str, command: str = "train", folder: Path = CONF) -> object:
    with initialize_config_dir(str(folder), version_base="1.3"):
        return read(COMMANDS[command], compose(command, list(overrides)))


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_composes(command: str) -> None:
    assert isinstance(composed(command=command), COMMANDS[command])


@pytest.mark.parametrize(("group", "option"), OPTIONS, ids=lambda value: value)
def test_every_yaml_composes(group: str, option: str) -> None:
    value = composed(f"{group}={option}")
    assert isinstance(value, TrainConfig)
    if hasattr(getattr(value, group, None), "kind") and option in {"full", "pruned", "greedy", "beam", "dynamic"}:
        assert getattr(value, group).kind == option


def test_every_group_of_the_schema_has_options_and_a_line_of_help() -> None:
    assert {group for group, _ in OPTIONS} == set(GROUPS)
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    assert groups == set(GROUPS)
    assert {corpus.value for corpus in Corpus} == {option for group, option in OPTIONS if group == "data"}


def test_every_experiment_says_question_command_and_expectation() -> None:
    for path in (CONF / "experiment").glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        for word in ("# Question:", "# Command:", "# Expected:", f"experiment={path.stem}"):
            assert word in text, f"{path.name} lacks {word}"


@pytest.mark.parametrize("override", ["encoder.d_modle=3", "+encoder.d_modle=3", "++encoder.d_modle=3"])
def test_a_typo_on_the_command_line_is_named(override: str) -> None:
    with pytest.raises((ValueError, ConfigCompositionException), match=r"encoder\.d_modle"):
        composed(override)


@pytest.mark.parametrize("override", ["+traning.max_steps=3", "++sede=3", "+experiment_name=x"])
def test_a_typo_at_the_top_is_named(override: str) -> None:
    with pytest.raises((ValueError, ConfigCompositionException), match=override.strip("+").split("=")[0].split(".")[0]):
        composed(override)


def test_a_typo_in_a_group_file_names_file_and_key(conf: Path) -> None:
    (conf / "encoder" / "mine.yaml").write_text("d_modle: 3\n")
    with pytest.raises(ConfigCompositionException, match=r"(?s)encoder/mine.*d_modle"):
        composed("encoder=mine", folder=conf)


@pytest.mark.parametrize("line", ["trainng: {max_steps: 3}", "encoder: {d_modle: 3}"])
def test_a_typo_in_an_experiment_file_names_file_and_key(conf: Path, line: str) -> None:
    (conf / "experiment" / "mine.yaml").write_text(f"# @package _global_\n{line}\n")
    with pytest.raises(ConfigCompositionException, match=r"(?s)experiment/mine.*(trainng|d_modle)"):
        composed("experiment=mine", folder=conf)


def test_an_unknown_option_of_a_group_names_the_ones_there_are() -> None:
    with pytest.raises(Exception, match=r"(?s)encoder/strming.*streaming"):
        composed("encoder=strming")


@pytest.mark.parametrize(("overrides", "words"), [
    (["seed=abc"], "seed=abc"),
    (["chunking.kind=sometimes"], "sometimes"),
    (["encoder.num_heads=7"], r"encoder\.num_heads=7 must divide"),
    (["loss=pruned", "loss.prune_range=1"], r"loss\.prune_range=1"),
    (["loss=pruned", "loss.backend=warp"], r"warp"),
    (["data.root=???"], r"no value for data\.root"),
    (["schedule.by_time=true"], r"training\.max_seconds"),
])  # fmt: skip
def test_wrong_values_are_refused_by_name(overrides: list[str], words: str) -> None:
    with pytest.raises(Exception, match=words) as caught:
        composed(*overrides)
    reason = caught.value.__cause__ or ""
    assert isinstance(caught.value, (ValueError, ConfigCompositionException)), reason


def test_an_unset_variable_is_refused_with_key_and_name_before_anything_starts() -> None:
    with pytest.raises(ValueError, match=r"data\.root: .*CHUNKWISE_NO_SUCH_VARIABLE"):
        composed("data.root=${oc.env:CHUNKWISE_NO_SUCH_VARIABLE}")


def test_circular_interpolations_are_refused() -> None:
    with pytest.raises(ValueError, match="logger|recursion"):
        composed("logger.name=${logger.project}", "logger.project=${logger.name}")


def test_full_and_streaming_differ_in_values_only() -> None:
    full, streaming = composed("encoder=full"), composed("encoder=streaming")
    assert isinstance(full, TrainConfig)
    assert isinstance(streaming, TrainConfig)
    assert type(full.encoder) is type(streaming.encoder)
    differing = [
        f.name for f in fields(full.encoder) if getattr(full.encoder, f.name) != getattr(streaming.encoder, f.name)
    ]
    assert differing == ["attention"]


def test_a_checkpoint_keeps_the_config_exactly() -> None:
    for overrides in ([], ["experiment=librispeech_streaming", "chunking=choices"]):
        value = composed(*overrides)
        kept = plain(value)
        assert restore(kept) == value
        assert OmegaConf.to_container(OmegaConf.create(to_yaml(value))) == kept


def test_a_group_and_one_of_its_keys_can_be_swept_together() -> None:
    for option in ("streaming", "full"):
        value = composed(f"encoder={option}", "encoder.d_model=64")
        assert isinstance(value, TrainConfig)
        assert value.encoder.d_model == 64


def test_an_evaluation_changes_only_what_is_given() -> None:
    trained = DataConfig(corpus=Corpus.fsdd, root="there", seed=3, max_batch_s=20.0)
    moved = composed("data.root=here", command="evaluate")
    assert isinstance(moved, configs.EvaluateConfig)
    changed = configs.changed_data(trained, moved.data, chosen=False)
    assert changed == DataConfig(corpus=Corpus.fsdd, root="here", seed=3, max_batch_s=20.0)
    other = composed("data=yesno", "data.root=here", command="evaluate")
    assert isinstance(other, configs.EvaluateConfig)
    assert configs.changed_data(trained, other.data, chosen=True).corpus is Corpus.yesno
