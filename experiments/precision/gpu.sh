#!/bin/sh
# The precision experiment with the LibriSpeech-size model (12 layers of 512, 8 heads) on one CUDA device.
# usage: experiments/precision/gpu.sh [FOLDER]
# Expected: about 2 minutes a run on an A100-80G, 40 minutes for all 18 (estimate; not run yet). Every run is to reach
#           the loss of fp32 and WER 0 on the training utterances.
exec experiments/precision/run.sh "${1:-runs/precision-large}" \
    features=fbank80 encoder=full_large encoder.num_layers=12 encoder.d_model=512 encoder.feed_forward_dim=2048 \
    encoder.kernel_size=31 encoder.subsampling_channels=64 predictor.dim=512 joiner.dim=512 \
    data.max_batch_s=120 optimizer.lr=0.0003 schedule.warmup_steps=100 training.max_steps=600 \
    runtime=default runtime.device=cuda
