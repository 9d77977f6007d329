"""Several processes on pretended GPUs: what NCCL sums does not pass through their hosts."""

import concurrent.futures
import json

import pytest

from tests.gpu.budgets_test import ALIGNMENT
from tests.programs import free_addresses

GPUS, PROCESSES = 2, 2
SCALARS = 64  # Bytes of the numbers that the host decides by, and that it sums across processes.


@pytest.mark.slow
def test_each_gpu_of_every_process_sums_all_gradients_by_one_call(run_on_gpus):
    addresses = free_addresses(PROCESSES)

    def run(index):
        task = {"type": "worker", "index": index}
        config = json.dumps({"cluster": {"worker": addresses}, "task": task})
        worker = ["-m", "tests.gpu.counts_worker", "shapes", GPUS, "nccl"]
        return run_on_gpus(GPUS, *worker, TF_CONFIG=config)

    with concurrent.futures.ThreadPoolExecutor(PROCESSES) as pool:
        results = list(pool.map(run, range(PROCESSES)))
    ranks = GPUS * PROCESSES
    for code, output in results:
        assert code == 0, output
        facts = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
        for device in facts["devices"]:
            assert device["reductions"] == 1
            padding = device["reduced_bytes"] - facts["gradient_bytes"]
            assert 0 <= padding <= ALIGNMENT * facts["num_variables"]
            around = device["bytes_to_peers"] - device["copied_to_peers"]
            assert around == 2 * (ranks - 1) / ranks * device["reduced_bytes"]  # Of all ranks.
            assert device["bytes_to_host"] <= SCALARS
            assert device["copied_to_peers"] <= SCALARS
