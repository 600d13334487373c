"""Random numbers as a function of where training stands, so that a checkpoint needs no generator states."""

import hashlib

import torch


def derived_seed(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part and on their order.

    >>> derived_seed(1, 2) == derived_seed(1, 2), derived_seed(1, 2) == derived_seed(2, 1)
    (True, False)
    """
    digest = hashlib.sha256("/".join(str(part) for part in parts).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seed_step(seed: int, window: int, micro_batch: int, device: torch.device) -> torch.Generator:
    """The generator of one micro-batch for dither and SpecAugment; torch's global one (dropout) is reseeded too.

    Everything random in a training step comes from here and depends only on the arguments: the run's seed, the
    window's number and the micro-batch's number in it, counted over all ranks. What validation, a restart or another
    rank drew before leaves no trace, and two ranks draw what one rank with twice the micro-batches would.

    >>> cpu = torch.device("cpu")
    >>> first = seed_step(7, 3, 1, cpu); dropout = torch.rand(1)
    >>> again = seed_step(7, 3, 1, cpu); bool(torch.rand(1) == dropout)
    True
    >>> bool(torch.rand(1, generator=first) == torch.rand(1, generator=again))
    True
    """
    torch.manual_seed(derived_seed(seed, window, micro_batch, "global"))
    return torch.Generator(device=device).manual_seed(derived_seed(seed, window, micro_batch, "explicit"))
