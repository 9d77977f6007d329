"""Importing the zoo costs nothing until a model is asked for."""

import subprocess
import sys


def test_importing_models_does_not_import_tensorflow():
    code = "import models, sys; sys.exit('tensorflow' in sys.modules or 'keras' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
