"""Importing the package of models does not import TensorFlow."""

import subprocess
import sys


def test_importing_models_does_not_import_tensorflow():
    code = (
        "import towers.models, sys; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
