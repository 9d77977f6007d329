"""What a model of machines says about a step: how much of one GPU's speed each of eight keeps."""

import pytest

from tests.gpu.milliseconds import predict
from tests.pretended_gpu.machines import MACHINES


@pytest.fixture(scope="module", autouse=True)
def pretended(run_on_gpus):
    """Skips where there are no pretended GPUs."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "rows", "kept"),
    [
        ("cifar10_tutorial", "", {"1080Ti": 0.85, "A100": 0.8, "H100": 0.75}),
        ("chatbot", "256", {"1080Ti": 0.8, "A100": 0.7, "H100": 0.87}),
    ],
)
def test_eight_gpus_with_nccl_keep_most_of_their_speed(recipe, rows, kept):
    """The bounds leave some percent to the order in which threads happen to run."""
    alone, eight = (predict(recipe, count, "nccl", rows) for count in (1, 8))
    assert eight.keys() == MACHINES.keys()
    for machine, share in kept.items():
        assert alone[machine] / eight[machine] >= share, machine


@pytest.mark.slow
def test_a_faster_machine_is_faster():
    found = predict("cifar10_tutorial", 2, "replicated")
    assert found["1080Ti"] > found["A100"] > found["H100"] > 0
