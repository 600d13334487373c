"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.console import Console
from rich.progress import track as rich_track

from chunkwise.typing import Seconds

Item = TypeVar("Item")

LINE_EVERY_S: Seconds = 10.0


def track(items: Iterable[Item], description: str, total: int) -> Iterator[Item]:
    """The items one by one, with a bar on standard error if that is a terminal, else a line every ten seconds."""
    console = Console(stderr=True)
    if console.is_terminal:
        yield from rich_track(items, description, total, console=console, transient=True)
        return
    shown_at = time.monotonic()
    for done, item in enumerate(items):
        if time.monotonic() - shown_at >= LINE_EVERY_S:
            shown_at = time.monotonic()
            print(f"{description}: {done} of {total}", file=sys.stderr, flush=True)
        yield item
