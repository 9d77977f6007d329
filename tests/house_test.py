"""The numbers of the house are counted where the code is today."""

import pytest

from tests import house


@pytest.mark.slow
def test_the_way_of_a_batch_goes_from_the_data_through_the_loop_to_the_step():
    way = house.visits_of_a_batch()
    assert {"data/batches/buckets.py", "towers/loop/updates.py", "towers/step/builder.py"} <= set(
        way.files
    )
    assert way.rooms_entered_again() > 0
