"""A real file system of one megabyte."""

import subprocess

import pytest


@pytest.fixture
def small_disk(tmp_path):
    """A mounted folder with room for one megabyte; skips where mounting is not permitted."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=600)
