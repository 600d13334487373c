"""The console scripts, as a user calls them."""

import os
import subprocess
import sys
from pathlib import Path


def command(
    name: str, *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a console script as a user would, without a terminal, and with an end."""
    variables = {k: v for k, v in os.environ.items() if k not in ("WANDB_API_KEY", "HYDRA_FULL_ERROR")}
    return subprocess.run(
        [sys.executable, "-m", f"chunkwise.cli.{name}", *arguments],
        cwd=cwd, env=variables | {"OMP_NUM_THREADS": "1"} | environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
