"""How towers on the CPU use it: a core each for their operations, and memory that they keep."""

from __future__ import annotations

import os

import tensorflow as tf

from towers.ground.cores import num_cores

# TensorFlow's allocator for GPUs, "best fit with coalescing", for tensors in the CPU's memory, as
# large as that is: by default it takes 64 GB at most.
KEEPING_ALLOCATOR = {
    "TF_CPU_ALLOCATOR_USE_BFC": "true",
    "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(2**24),
}

_has_shared = False  # Whether the number of threads is `share_cores`'s; TensorFlow holds it once.


def share_cores(num_towers: int) -> None:
    """Has each operation run on one thread, if every core has a tower that keeps it busy.

    By default TensorFlow splits each operation between all cores. Towers that do so at the same
    time wait for each other's parts. A number of threads that was chosen otherwise is kept.
    """
    global _has_shared
    if shares_cores(num_towers) and not are_threads_chosen():
        tf.config.threading.set_intra_op_parallelism_threads(1)
        _has_shared = True


def use_all_cores() -> None:
    """Takes `share_cores` back.

    Raises:
        RuntimeError: TensorFlow is already running with it.
    """
    global _has_shared
    if not _has_shared:
        return
    try:
        tf.config.threading.set_intra_op_parallelism_threads(0)
    except RuntimeError as error:
        raise RuntimeError(
            "The number of threads of an operation, which depends on the number of towers, cannot "
            "be changed any more, because TensorFlow is already running. Call "
            "enable_determinism() before the first tensor or variable is made."
        ) from error
    _has_shared = False


def are_threads_chosen() -> bool:
    """Returns whether the environment or the program says on how many threads operations run."""
    chosen = tf.config.threading.get_intra_op_parallelism_threads()
    return chosen != 0 or "TF_NUM_INTRAOP_THREADS" in os.environ


def shares_cores(num_towers: int) -> bool:
    """Returns whether so many towers, at least two, leave no core without one."""
    return 1 < num_towers >= num_cores()


def keep_memory() -> None:
    """Has TensorFlow keep the memory that a step frees, since the next step needs it again.

    By default it goes back to the system, which then clears page after page for every step.
    It works until TensorFlow makes its first tensor; a choice in the environment is kept.
    """
    for name, value in KEEPING_ALLOCATOR.items():
        os.environ.setdefault(name, value)
