"""Utterances that cannot be used: which, and why. They are counted and named once, never dropped silently."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Skip:
    """An utterance (or a recording of a corpus) that was left out."""

    id: str
    reason: str
