"""An epoch goes on at any of its steps, and nowhere else."""

import numpy as np
import pytest

from towers.data.batching.epochs import check_position, dataset_of_steps


def batch_of_step(step):
    return np.full((2, step + 1), step, np.int32), np.zeros((2, 1), np.int32)


@pytest.mark.parametrize("first_step", [0, 2, 3])
def test_batches_come_in_order_from_a_step_on(first_step):
    check_position(0, first_step, 3)
    batches = list(dataset_of_steps(batch_of_step, first_step, 3))
    assert [first.shape for first, _ in batches] == [(2, n + 1) for n in range(first_step, 3)]
    assert [int(first[0, 0]) for first, _ in batches] == list(range(first_step, 3))


@pytest.mark.parametrize(("epoch", "first_step"), [(-1, 0), (0, -1), (0, 4)])
def test_a_place_outside_of_an_epoch_is_refused(epoch, first_step):
    with pytest.raises(ValueError, match=f"3 batches.*epoch={epoch}, first_step={first_step}"):
        check_position(epoch, first_step, 3)
