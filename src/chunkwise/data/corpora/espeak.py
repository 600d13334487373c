"""eSpeak NG as a pure function: text and a delivery in, samples and word times out."""

import ctypes
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import espeakng_loader
import numpy as np
from jaxtyping import Int16

from chunkwise.typing import Seconds

SYNCHRONOUS, PHONEME_EVENTS, DO_NOT_EXIT = 2, 0x0001, 0x8000
BUFFER_MS = 500
RATE, PITCH, PITCH_RANGE, WORD_GAP = 1, 3, 4, 7
CHARACTERS_ARE_UTF8 = 1
WORD_EVENT, PHONEME_EVENT = 1, 7

_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Who speaks, and how."""

    voice: str  # accent+variant: a language's name or file (below `lang/`), and a file of `voices/!v/`
    rate_wpm: int = 175  # words of text per minute, 80 to 450
    pitch: int = 50  # 0 to 99
    pitch_range: int = 50  # 0 (monotone) to 99
    word_gap_10ms: int = 0  # silence between words, in units of 10 ms at the default rate
    seed: int = 1  # of the noise in breath and flutter


@dataclass(frozen=True, slots=True)
class Speech:
    """Synthesised samples, and when each word of the text is heard."""

    samples: Int16[np.ndarray, " samples"]
    rate_hz: int
    words: list[tuple[Seconds, Seconds]]  # start and end of each


class _EventId(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _EventId),
    )


_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event))


def speak(text: str, delivery: Delivery) -> Speech:
    """The text as this voice says it: the same arguments give the same samples, whatever was said before.

    eSpeak keeps state between utterances that no call resets (the flutter's phase, noise), so each utterance
    loads a private copy of the library and unloads it again, which takes about a millisecond.

    >>> speech = speak("three one four", Delivery(voice="gmw/en-US+m3"))
    >>> speech.rate_hz, len(speech.words)
    (22050, 3)
    """
    pieces: list[Int16[np.ndarray, " piece"]] = []
    events: list[tuple[int, int, bytes]] = []

    def collect(wave: "ctypes._Pointer[ctypes.c_short]", count: int, event: "ctypes._Pointer[_Event]") -> int:
        if wave and count > 0:
            pieces.append(np.ctypeslib.as_array(wave, (count,)).copy())
        index = 0
        while event[index].type != 0:
            kind = event[index].type
            events.append((kind, event[index].sample, event[index].id.string if kind == PHONEME_EVENT else b""))
            index += 1
        return 0

    with _private_library() as (library, rate_hz):
        callback = _Callback(collect)
        library.espeak_SetSynthCallback(callback)
        _apply(library, delivery)
        encoded = text.encode()
        status = library.espeak_Synth(encoded, len(encoded) + 1, 0, 1, 0, CHARACTERS_ARE_UTF8, None, None)
    if status != 0 or not pieces:
        raise RuntimeError(f"eSpeak NG could not say {text!r} with the voice {delivery.voice} (status {status})")
    samples = np.concatenate(pieces)
    return Speech(samples, rate_hz, _word_times(events, len(samples), rate_hz))


def _apply(library: ctypes.CDLL, delivery: Delivery) -> None:
    if library.espeak_SetVoiceByName(delivery.voice.encode()) != 0:
        raise ValueError(f"eSpeak NG has no voice {delivery.voice!r}; try gmw/en-US+m3")
    settings = {
        RATE: delivery.rate_wpm,
        PITCH: delivery.pitch,
        PITCH_RANGE: delivery.pitch_range,
        WORD_GAP: delivery.word_gap_10ms,
    }
    for parameter, value in settings.items():
        library.espeak_SetParameter(parameter, value, 0)
    library.espeak_ng_SetRandSeed(ctypes.c_long(delivery.seed))
    ctypes.CDLL(None).srand(ctypes.c_uint(delivery.seed))  # the Klatt voices draw from the C library instead


def _word_times(events: list[tuple[int, int, bytes]], num_samples: int, rate_hz: int) -> list[tuple[Seconds, Seconds]]:
    """A word ends at the pause after it, or where the next word starts."""
    times: list[tuple[Seconds, Seconds]] = []
    start: int | None = None
    for kind, sample, phoneme in [*events, (WORD_EVENT, num_samples, b"")]:
        is_pause = kind == PHONEME_EVENT and phoneme.startswith(b"_")
        if start is not None and sample > start and (kind == WORD_EVENT or is_pause):
            times.append((start / rate_hz, min(sample, num_samples) / rate_hz))
            start = None
        if kind == WORD_EVENT and sample < num_samples:
            start = sample
    return times


@contextmanager
def _private_library() -> Iterator[tuple[ctypes.CDLL, int]]:
    """The library freshly loaded, so in its first state, and its sample rate in Hz."""
    with _ONE_AT_A_TIME:
        folder = Path(_private_folder().name)
        data = folder / "espeak-ng-data"
        library = ctypes.CDLL(str(folder / "library.so"))
        try:
            rate_hz = library.espeak_Initialize(SYNCHRONOUS, BUFFER_MS, os.fsencode(data), PHONEME_EVENTS | DO_NOT_EXIT)
            if rate_hz <= 0:
                raise RuntimeError(
                    f"eSpeak NG could not read its voices in {data.resolve()}; reinstall espeakng-loader"
                )
            yield library, rate_hz
            library.espeak_Terminate()
        finally:
            ctypes.CDLL(None).dlclose(ctypes.c_void_p(library._handle))


@lru_cache(maxsize=1)
def _private_folder() -> tempfile.TemporaryDirectory[str]:
    """A copy of the library that nobody else in this process holds, and a short path to its voices.

    eSpeak cuts paths at 160 bytes.
    """
    folder = tempfile.TemporaryDirectory(prefix="espeak-", ignore_cleanup_errors=True)
    shutil.copy(espeakng_loader.get_library_path(), Path(folder.name) / "library.so")
    (Path(folder.name) / "espeak-ng-data").symlink_to(espeakng_loader.get_data_path())
    return folder
