"""The console scripts, as a user calls them.

Most of a short command's time goes into its imports, so commands start as forks of the server that has done them. A
command with an environment of its own is a new interpreter, as the libraries read theirs when they are imported.
"""

import importlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

TIMEOUT_S = 180
UNWANTED = ("WANDB_API_KEY", "HYDRA_FULL_ERROR")


def command(
    name: str, *arguments: str, cwd: Path | None = None, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Run a console script as a user would, without a terminal, and with an end."""
    if environment:
        variables = {k: v for k, v in os.environ.items() if k not in UNWANTED}
        return subprocess.run(
            [sys.executable, "-m", f"chunkwise.cli.{name}", *arguments], cwd=cwd, env=variables | environment,
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        printed = [Path(folder, stream) for stream in ("stdout", "stderr")]
        forks = multiprocessing.get_context("forkserver")
        process = forks.Process(target=_script, args=(name, arguments, cwd or Path.cwd(), printed))
        process.start()
        process.join(TIMEOUT_S)
        if process.exitcode is None:
            process.kill()
            raise subprocess.TimeoutExpired([name, *arguments], TIMEOUT_S, *(path.read_bytes() for path in printed))
        return subprocess.CompletedProcess(
            [name, *arguments], process.exitcode, *(path.read_text(encoding="utf-8") for path in printed)
        )


def _script(name: str, arguments: tuple[str, ...], cwd: Path, printed: list[Path]) -> None:
    """Become the console script: its streams, arguments and folder; the exit code is the interpreter's."""
    for descriptor, path in enumerate([Path(os.devnull), *printed]):
        opened = os.open(path, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    for variable in UNWANTED:
        os.environ.pop(variable, None)
    os.chdir(cwd)
    sys.argv = [f"chunkwise-{name}", *arguments]
    try:
        importlib.import_module(f"chunkwise.cli.{name}").main()
    except Exception:
        traceback.print_exc()
        raise SystemExit(1) from None
