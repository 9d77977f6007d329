"""`towers.fit` where there are GPUs, on pretended ones."""

import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", ["auto", False])
def test_fit_has_a_tower_on_every_gpu(run_on_gpus, jit_compile):
    """Keras has put the model on the first one; nothing had to be said about devices."""
    code, output = run_on_gpus(2, "-m", "tests.gpu.fit_worker", json.dumps(jit_compile))
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert code == 0 and lines, output
    xla = jit_compile == "auto"  # As Keras resolves it where there is a GPU.
    assert json.loads(lines[-1]) == {"devices": ["GPU:0", "GPU:1"], "epochs": [0, 1], "xla": xla}
