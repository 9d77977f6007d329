"""What travels between towers with a copy of the variables each, on pretended GPUs."""

import json

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(("recipe", "num_gpus"), [("cifar10_resnet", 2), ("cifar10_tutorial", 4)])
def test_gradients_travel_in_slices_and_all_else_together(run_on_gpus, recipe, num_gpus):
    code, output = run_on_gpus(num_gpus, "-m", "tests.gpu.exchange_worker", recipe, num_gpus)
    assert code == 0, output
    facts = json.loads(output.splitlines()[-1])
    gradients = facts["gradients"]
    # Each tower sends what a ring would; states and scalars are the small rest.
    for sent in facts["sent"]:
        assert sent == pytest.approx(2 * (num_gpus - 1) / num_gpus * gradients, rel=0.05)
    assert facts["busiest_link"] <= 1.05 * 2 / num_gpus * gradients
    # Two for each pack and pair of towers, one from each tower and one back.
    packs = -(-gradients // 2**20)  # At most: they hold up to 4 MB.
    pairs = num_gpus * (num_gpus - 1)
    assert facts["copies"] <= 2 * pairs * packs + 2 * (num_gpus - 1)
    assert facts["small_copies"] <= 2 * (num_gpus - 1)
