"""`import towers` chooses oneDNN's kernels, and says where it comes too late."""

import os
import platform
import subprocess
import sys

import pytest
from tensorflow.python.framework.test_util import IsMklEnabled

from tests.paths import ROOT
from towers.devices.kernels import CHOICE, IS_DEFAULT

pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="oneDNN is chosen on x86 processors only"
)
PROGRAM = """
import warnings

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import {first}
    import {second}
    from tensorflow.python.framework.test_util import IsMklEnabled

    towers.select_devices(1)
print(IsMklEnabled(), any("imported before towers" in str(one.message) for one in caught))
"""

OF_A_MODEL = """
import warnings

import keras
import numpy as np
import towers
from tensorflow.python.framework import test_util

test_util.IsMklEnabled = lambda: False  # As by default on processors without AVX-512 VNNI.
model = keras.Sequential([keras.Input([2]), keras.layers.Dense(1)])
model.compile(loss="mse")
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    towers.predict(model, np.zeros([4, 2], "float32"))
print([one.filename for one in caught if "imported before towers" in str(one.message)])
"""


def kernels(first, second, choice=None):
    """Returns whether a new process has oneDNN's kernels, and whether it was warned."""
    variables = {key: value for key, value in os.environ.items() if key != CHOICE}
    if choice is not None:
        variables[CHOICE] = choice
    has_onednn, was_warned = run(PROGRAM.format(first=first, second=second), variables).split()[-2:]
    return has_onednn == "True", was_warned == "True"


def run(program, variables):
    """Returns what a new process with these variables prints."""
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, cwd=ROOT, env=variables, timeout=600,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout


def test_they_are_chosen_here_where_towers_comes_first():
    assert not IS_DEFAULT
    assert IsMklEnabled() == (os.environ[CHOICE] != "0")


def test_they_are_those_of_onednn():
    assert kernels("towers", "keras") == (True, False)


@pytest.mark.parametrize("order", [("towers", "keras"), ("keras", "towers")])
def test_a_choice_in_the_environment_is_kept(order):
    assert kernels(*order, choice="0") == (False, False)


def test_a_warning_tells_that_tensorflow_was_imported_before():
    has_onednn, was_warned = kernels("keras", "towers")  # By default some processors have them.
    assert was_warned != has_onednn


def test_a_model_of_ones_own_is_warned_about_too_where_towers_is_called():
    variables = {key: value for key, value in os.environ.items() if key != CHOICE}
    assert run(OF_A_MODEL, variables).splitlines()[-1] == "['<string>']"
