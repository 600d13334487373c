"""What a run shows: a progress bar on a terminal, plain lines elsewhere, nothing on ranks other than 0."""

import sys

from rich.console import Console as RichConsole
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn


class Console:
    """Lines and, on a terminal, a bar that moves with the optimizer step."""

    def __init__(self, total_steps: int, quiet: bool = False) -> None:
        self.quiet = quiet
        self.progress: Progress | None = None
        if sys.stdout.isatty() and not quiet:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            times = (TimeElapsedColumn(), TimeRemainingColumn())
            self.progress = Progress(*columns, *times, console=RichConsole())
            self.task = self.progress.add_task("training", total=total_steps)
            self.progress.start()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self.quiet:
            return
        if self.progress is not None:
            self.progress.console.print(text, markup=False, highlight=False)
        else:
            print(text, flush=True)

    def step(self, step: int, text: str) -> None:
        """Show where training stands: on the bar, else as a line."""
        if self.progress is not None:
            self.progress.update(self.task, completed=step, description=text)
        else:
            self.say(text)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self.progress is not None:
            self.progress.stop()
