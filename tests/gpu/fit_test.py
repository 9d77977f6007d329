"""`towers.fit` where there are GPUs, on pretended ones."""

import json

import pytest


@pytest.mark.slow
def test_fit_has_a_tower_on_every_gpu(run_on_gpus):
    """Keras has put the model on the first one; nothing had to be said about devices."""
    code, output = run_on_gpus(2, "-m", "tests.gpu.fit_worker")
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert code == 0 and lines, output
    assert json.loads(lines[-1]) == {"products": ["GPU:0", "GPU:1"], "epochs": [0, 1]}
