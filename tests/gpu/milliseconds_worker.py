"""Predicts how long a step of a recipe takes on machines with GPUs; prints it as JSON.

python -m tests.gpu.milliseconds_worker RECIPE NUM_GPUS WAY [ROWS]: as for `counts_worker`; ROWS are
the examples of a tower.
"""

import json
import sys

import tensorflow as tf

import towers
from benchmarks import rivals
from tests.gpu import recipe_steps
from tests.gpu.counts_worker import trainer_run
from tests.gpu.values import ignore_values
from tests.pretended_gpu.machines import MACHINES
from tests.pretended_gpu.pretended_gpu import now, timed
from towers.batches import shards

WARM, STEPS = 2, 4
THREADS = 48  # Of the machine with the GPUs: under a virtual clock a thread that waits is taken.


def main():
    name, num_gpus, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    size = recipe_steps.PUBLISHED[name]
    if len(sys.argv) > 4:
        size = size._replace(rows=int(sys.argv[4]))
    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    ignore_values()
    devices = towers.select_devices(num_gpus).groups
    task = recipe_steps.make_task(size, num_gpus, static=True)
    if way in rivals.RIVALS:
        shards.any_number_of_rows = lambda spec: spec
        run = rivals.RIVALS[way](rivals.Task(*task), [group[0] for group in devices])
    else:
        run = trainer_run(recipe_steps.build_step(task, devices, way), task.dataset)
    run(WARM)
    found = {key: seconds(run, machine) for key, machine in MACHINES.items()}
    print(json.dumps({key: 1e3 * value for key, value in found.items()}), flush=True)


def seconds(run, machine):
    """Returns the virtual seconds of a step: what more steps take more."""
    ends = []
    with timed(machine):
        for num_steps in (WARM, WARM + STEPS):
            begin = now()
            run(num_steps)
            ends.append(now() - begin)
            tf.test.experimental.sync_devices()
    return (ends[1] - ends[0]) / STEPS


if __name__ == "__main__":
    main()
