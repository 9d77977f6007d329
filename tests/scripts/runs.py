"""What tests of `towers train` share: a small run, and what its checkpoint holds."""

from towers.run.checkpoint_folder import CheckpointFolder

TINY = ["--batch-size", "100", "--set", "filters=4,6", "--set", "hidden_size=32"]
TINY += ["--set", "clip_norm=1", "--set", "schedule=constant", "--set", "learning_rate=0.005"]


def train_shapes(run_dir, *options):
    """Returns the arguments that train shapes; an epoch has 20 steps."""
    return ["train", "shapes", "--run-dir", str(run_dir), *TINY, *map(str, options)]


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
