#!/usr/bin/env bash
# run.sh N COMMAND...: runs a command with N pretended GPUs, for the TensorFlow of $PYTHON (default: python3).
set -euo pipefail
[ $# -ge 2 ] || { echo "usage: run.sh N COMMAND..." >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export PRETENDED_GPUS=$1
shift
libraries=$("${PYTHON:-python3}" "$here/build.py")
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
unset CUDA_VISIBLE_DEVICES
# No ptxas is asked for, no convolution is timed, memory is taken as it is needed.
export TF_DISABLE_RZ_CHECK=1 TF_CUDNN_USE_AUTOTUNE=0 TF_FORCE_GPU_ALLOW_GROWTH=true
# XLA times no kernels, and launches each by itself: recorded launches are not pretended.
export XLA_FLAGS="--xla_gpu_autotune_level=0 --xla_gpu_enable_command_buffer=${XLA_FLAGS:+ $XLA_FLAGS}"
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
exec "$@"
