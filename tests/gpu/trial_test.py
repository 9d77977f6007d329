"""Where the parameters live on several GPUs, on pretended ones."""

import pytest

from tests.scripts.runs import train_shapes
from towers.scripts.training.run_directory import RunDirectory


@pytest.mark.slow
def test_pretended_gpus_are_measured_once(run_on_gpus, tmp_path):
    """Pretended copies have no values, so that only the CPU can be trusted with parameters."""
    command = ["-m", "towers.scripts.main", *train_shapes(tmp_path / "run", "--towers", "2")]
    first, second = (run_on_gpus(2, *command, "--steps", "1")[1] for _ in range(2))
    said = "parameters on the CPU: "
    assert said in first and said not in second, first + second
    trial = RunDirectory(tmp_path / "run").read()["trial"]
    assert (trial["towers"], list(trial["milliseconds"])) == (2, ["cpu"])
    assert "parameters on CPU:0" in first and "parameters on CPU:0" in second
