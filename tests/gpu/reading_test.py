"""What a loop over tokens reads of variables on the CPU, seen on a pretended GPU."""

import json

import pytest


@pytest.mark.slow
def test_the_output_projection_travels_once_for_all_tokens_of_an_answer(run_on_gpus):
    code, output = run_on_gpus(1, "-m", "tests.gpu.reading_worker")
    assert code == 0, output
    told = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
    assert told == {"products": 8, "travelled": 1}
