"""Recognition is free of its batch, of the modes of the modules and of their randomness."""

from collections.abc import Callable

import torch
from lhotse import CutSet
from torch import nn

from chunkwise.data.batches import Batch
from chunkwise.data.loading import BadAudio, SpeechDataset
from chunkwise.evaluation.recogniser import Recogniser, inference
from chunkwise.models.context import ChunkContext

FULL, CHUNKED = ChunkContext(None, None), ChunkContext(4, 1)


def make_batch(recogniser: Recogniser, waveforms: list[torch.Tensor]) -> Batch:
    lengths = torch.tensor([len(waveform) for waveform in waveforms])
    ids, none = [str(index) for index in range(len(waveforms))], torch.zeros(len(waveforms), dtype=torch.long)
    return Batch(
        ids=ids,
        texts=[""] * len(ids),
        waveforms=nn.utils.rnn.pad_sequence(waveforms, batch_first=True),
        lengths=lengths,
        tokens=none[:, None][:, :0],
        token_lengths=none,
        weights=torch.ones(len(ids)),
        skipped=[],
    )


def noise(samples: int) -> torch.Tensor:
    return 0.1 * torch.randn(samples, generator=torch.Generator().manual_seed(samples))


def test_batch_mates_do_not_change_a_hypothesis(recogniser: Recogniser) -> None:  # k2-fsa/icefall#358
    waveforms = [noise(samples) for samples in (1_700, 16_000, 24_321)]
    for context in (FULL, CHUNKED):
        together = recogniser.recognise(make_batch(recogniser, waveforms), context)
        alone = [recogniser.recognise(make_batch(recogniser, [waveform]), context)[0] for waveform in waveforms]
        assert [hypothesis.tokens for hypothesis in together] == [hypothesis.tokens for hypothesis in alone]
        assert [hypothesis.frames for hypothesis in together] == [hypothesis.frames for hypothesis in alone]
    assert all(hypothesis.tokens for hypothesis in together)


def test_audio_without_a_frame_gives_the_empty_hypothesis(recogniser: Recogniser) -> None:
    short, longer = [noise(0), noise(1), noise(79)], noise(8_000)
    for hypotheses in (
        recogniser.recognise(make_batch(recogniser, short), FULL),
        recogniser.recognise(make_batch(recogniser, [*short, longer]), FULL)[:3],
    ):
        assert [recogniser.text(hypothesis) for hypothesis in hypotheses] == ["", "", ""]
    assert recogniser.recognise(make_batch(recogniser, [*short, longer]), FULL)[3].tokens
    for samples in (80, 399, 400):
        recogniser.recognise(make_batch(recogniser, [noise(samples)]), FULL)


def test_recognition_neither_trains_nor_prevents_training(recogniser: Recogniser) -> None:
    model = recogniser.model.train()
    model.encoder.eval()
    modes = [part.training for part in model.modules()]
    batch = make_batch(recogniser, [noise(16_000)])
    first, second = recogniser.recognise(batch, FULL), recogniser.recognise(batch, FULL)
    assert first == second  # neither dropout nor dither
    assert [part.training for part in model.modules()] == modes
    assert recogniser.fbank.training
    model.train()
    features, lengths = recogniser.fbank(batch.waveforms, batch.lengths)
    model.encode(features, lengths, FULL)[0].sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.encoder.parameters())


def test_modes_come_back_after_an_error() -> None:
    layer = nn.Dropout(0.5)
    try:
        with inference(layer):
            raise RuntimeError
    except RuntimeError:
        pass
    assert layer.training
    assert torch.is_grad_enabled()


def test_the_dataset_feeds_the_recogniser(
    recogniser: Recogniser, make_cuts: Callable[[list[int], list[str]], CutSet]
) -> None:
    batch = SpeechDataset(recogniser.tokenizer, 16_000, BadAudio.refuse)[make_cuts([16_000, 3_000], ["one", "two"])]
    features, lengths = recogniser.features(batch)
    assert lengths.tolist() == [100, 19]
    assert features.isfinite().all()
