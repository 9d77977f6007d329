"""Programs that load exports where this package is not."""

import json
import subprocess
import sys

from tests.programs import PATIENCE

CLASSIFY = """
import json
import numpy as np
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
images = np.load(sys.argv[2])
called = model.classify(images)
served = model.signatures["serving_default"](images=tf.constant(images))
print(json.dumps({
    "names": sorted(model.signatures),
    "classes": called["classes"].numpy().tolist(),
    "probabilities": called["probabilities"].numpy().tolist(),
    "same": bool(np.array_equal(called["probabilities"], served["probabilities"])),
}))
"""

CONTINUE = """
import json
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
read = tf.constant(json.loads(sys.argv[2]), tf.int32)
decoded = model.signatures["serving_default"](read=read, seed=tf.constant([3, 0], tf.int64))
print(json.dumps(decoded["ids"].numpy()[0].tolist()))
"""


def run_elsewhere(program, *arguments, folder, python=sys.executable):
    """Runs a program that cannot import this package; returns the object that it prints.

    Args:
        program: after `import sys`.
        arguments: of the program.
        folder: where it runs.
        python: the interpreter.
    """
    spy = "import sys; sys.path[:] = [one for one in sys.path if one]\n" + program
    spy += "\nassert not {'towers', 'models', 'scripts', 'data'} & set(sys.modules)\n"
    done = subprocess.run(
        [python, "-I", "-c", spy, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
