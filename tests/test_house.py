"""The project's own files agree with each other."""

import importlib
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def name(requirement: str) -> str:
    """A requirement's distribution, as package indexes spell it."""
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return re.sub(r"[-_.]+", "-", found[0]).lower()


def test_every_dependency_is_pinned_for_ci() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {name(line): line for line in lines if line and not line.startswith("#")}
    assert all("==" in line for line in pinned.values())
    for extra in ("dev", "bench"):
        for requirement in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"][extra]]:
            assert name(requirement) in pinned, f"{requirement} has no pin"


@pytest.mark.parametrize("script", PROJECT["scripts"])
def test_every_console_script_exists_and_is_in_the_readme(script: str) -> None:
    module, function = PROJECT["scripts"][script].split(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert script in (ROOT / "README.md").read_text(encoding="utf-8")


def test_make_help_shows_the_targets() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    for target in ("setup", "demo", "test", "check", "bench"):
        assert re.search(rf"^{target}\s+\w", shown, re.MULTILINE), target


def test_the_readme_names_options_that_exist() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for group, option in re.findall(r"\b(data|encoder|chunking|precision|eval|experiment)=([a-z_0-9]+)", readme):
        assert (ROOT / "conf" / group / f"{option}.yaml").exists(), f"{group}={option}"
