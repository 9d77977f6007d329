"""A real file system of one megabyte, and a TensorFlow that adds up as it is told."""

import subprocess

import pytest
import tensorflow as tf


@pytest.fixture
def small_disk(tmp_path):
    """A mounted folder with room for one megabyte; skips where mounting is not permitted."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


@pytest.fixture
def sums_as_written():
    """What `towers.enable_determinism` does to sums, for one test."""
    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True, **before})
