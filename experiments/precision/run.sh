#!/bin/sh
# Every run of the precision experiment, then word error rates on the training utterances, a table and a picture.
# usage: experiments/precision/run.sh FOLDER [OVERRIDE...]
# Expected on one core without half-precision arithmetic: see experiments/012_precision_three_seeds/README.md.
set -e
folder=$1
shift
python=${PYTHON:-python}
train() { "$python" -m chunkwise.cli.train -m experiment=precision_overfit "hydra.sweep.dir=$folder" "$@"; }
seeds=${SEEDS:-0,1,2}
train 'hydra.sweep.subdir=${precision.kind}-seed${seed}' precision=fp32,bf16 "seed=$seeds" "$@"
train 'hydra.sweep.subdir=fp16-scale${precision.grad_scaler.init_scale}-seed${seed}' precision=fp16 \
    precision.grad_scaler.init_scale=1,16,1024,65536 "seed=$seeds" "$@"
for run in "$folder"/*-seed*; do "$python" -m chunkwise.cli.evaluate "checkpoint=$run/checkpoints/last.pt" eval.split=train; done
"$python" experiments/precision/summary.py "$folder"/*-seed*
