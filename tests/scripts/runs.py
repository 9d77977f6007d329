"""What tests of `towers train` share: a small run, and what its checkpoint holds."""

import os
import random
import signal

from tests.programs import run, started
from towers.saving.checkpoint_folder import CheckpointFolder

TINY = ["--batch-size", "100", "--set", "filters=4,6", "--set", "hidden_size=32"]
TINY += ["--set", "clip_norm=1", "--set", "schedule=constant", "--set", "learning_rate=0.005"]

HELD_OUT = ["--set", "validation_share=0.1"]  # A best is chosen by it; an epoch has 18 steps.


def train_shapes(run_dir, *options):
    """Returns the arguments that train shapes; an epoch has 20 steps."""
    return ["train", "shapes", "--run-dir", str(run_dir), *TINY, *map(str, options)]


def killed_twice(command, **options):
    """Kills a training at two random reports, then returns what it prints to its end.

    Args:
        command: of a training that reports and saves often.
        options: of the processes.
    """
    moments = random.Random(os.getpid())
    for _ in range(2):
        with started(command, **options) as process:
            last = moments.randint(3, 10)
            for line in process.stdout:
                last -= line.startswith("train")
                if last == 0:
                    break
            process.send_signal(signal.SIGKILL)
            process.wait()
    return run(command, **options)


def arrays_of(run_dir):
    """Returns the step of the latest checkpoint, and its arrays by group and place.

    Keras counts the optimizers of a process in their variables' names.
    """
    checkpoint = CheckpointFolder(run_dir / "checkpoints").latest()
    return checkpoint.step, {
        f"{group}/{index}": saved.array
        for group, arrays in checkpoint.groups.items()
        for index, saved in enumerate(arrays)
    }


def weights_of(run_dir):
    """Returns the model's variables in the latest checkpoint."""
    return [array for name, array in arrays_of(run_dir)[1].items() if name.startswith("variables")]
