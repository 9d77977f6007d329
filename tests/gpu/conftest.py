"""Runs programs on pretended GPUs."""

import os
import platform
import shutil
import subprocess
import sys

import pytest

from tests.paths import ROOT

RUN = ROOT / "tests" / "pretended_gpu" / "run.sh"


@pytest.fixture(scope="session")
def run_on_gpus():
    """Returns `run(num_gpus, *arguments, **environment) -> (exit code, output)` of this Python."""
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("pretended GPUs need Linux on x86-64")
    if not shutil.which(os.environ.get("CC", "gcc")) or not shutil.which("nm"):
        pytest.skip("pretended GPUs are built with gcc and binutils, which are not there")

    def run(num_gpus, *arguments, **environment):
        command = [RUN, str(num_gpus), sys.executable, *map(str, arguments)]
        environment = {**os.environ, "PYTHON": sys.executable, **environment}
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        if "libdevice not found" in result.stdout:
            pytest.skip("some kernels are compiled with CUDA's libdevice, which is not there")
        return result.returncode, result.stdout

    return run
