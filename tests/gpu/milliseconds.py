"""Prints how long a step would take on machines with GPUs, as a Markdown table; by a model of them.

The table has milliseconds, and the share of one GPU's speed that each GPU keeps. They are those of
`tests/pretended_gpu/machines.py`, under a virtual clock, and nobody has compared them with a GPU.

python -m tests.gpu.milliseconds cifar10_tutorial,chatbot:256 1,2,4,8 replicated,nccl,mirrored
"""

import argparse
import json
import os
import subprocess
import sys

from tests.paths import ROOT
from tests.pretended_gpu.machines import MACHINES

RUN = ROOT / "tests" / "pretended_gpu" / "run.sh"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", type=lambda text: text.split(","), help="RECIPE or RECIPE:ROWS")
    parser.add_argument("gpus", type=lambda text: [int(number) for number in text.split(",")])
    parser.add_argument("ways", type=lambda text: text.split(","))
    given = parser.parse_args()
    print("| recipe | way | GPUs | " + " | ".join(MACHINES) + " |")
    print("|" + "---|" * (3 + len(MACHINES)), flush=True)
    for recipe in given.recipes:
        name, _, rows = recipe.partition(":")
        alone = predict(name, 1, "replicated", rows)
        for way in given.ways:
            for num_gpus in given.gpus:
                found = predict(name, num_gpus, way, rows)
                print(f"| {name} | {way} | {num_gpus} | {cells(found, alone)} |", flush=True)


def predict(recipe, num_gpus, way, rows=""):
    """Returns the milliseconds of a step by machine, or None if the program ended with an error."""
    worker = [sys.executable, "-m", "tests.gpu.milliseconds_worker", recipe, str(num_gpus), way]
    result = subprocess.run(
        [RUN, str(num_gpus), *worker, *[rows][: bool(rows)]],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines and result.returncode == 0 else None


def cells(found, alone):
    """Returns the cells of a row: milliseconds, and one GPU's divided by them."""
    if found is None:
        return " | ".join(["fails"] * len(MACHINES))
    return " | ".join(f"{found[key]:.2f} ({alone[key] / found[key]:.2f})" for key in MACHINES)


if __name__ == "__main__":
    main()
