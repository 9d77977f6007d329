"""Prints what GPUs do in a step, as a Markdown table; on pretended GPUs.

Launches, waits and copies are those of the first and the last GPU, bytes those of all. `pinned` is
the share of the bytes to and from the host that is in page-locked memory. A copy to the host makes
the host wait for what it decides by; "host waits" are those for whole devices, streams and events.

python -m tests.gpu.table cifar10_tutorial,chatbot 1,2,4,8 plain,cpu,replicated,mirrored
"""

import argparse
import json
import os
import subprocess
import sys

from tests.paths import ROOT

RUN = ROOT / "tests" / "pretended_gpu" / "run.sh"
MEGABYTE = 1e6
HEAD = (
    "| recipe | way | GPUs | launches | host waits | copies to the host | from the host | to peers "
    "| MB to the host | from the host | to peers | pinned |\n|" + "---|" * 12
)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", type=lambda text: text.split(","))
    parser.add_argument("gpus", type=lambda text: [int(number) for number in text.split(",")])
    parser.add_argument("ways", type=lambda text: text.split(","))
    given = parser.parse_args()
    print(HEAD, flush=True)
    for recipe in given.recipes:
        for way in given.ways:
            for num_gpus in [1] if way == "plain" else given.gpus:
                print(row(recipe, way, num_gpus, count(recipe, way, num_gpus)), flush=True)


def count(recipe, way, num_gpus):
    """Returns what each GPU does in a step, or None if the program ended with an error."""
    worker = [sys.executable, "-m", "tests.gpu.counts_worker", recipe, str(num_gpus), way]
    result = subprocess.run(
        [RUN, str(num_gpus), *worker, '{"published": true}'],
        cwd=ROOT,
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1])["devices"] if lines and result.returncode == 0 else None


def row(recipe, way, num_gpus, devices):
    """Returns a row of the table: counts of the first and the last GPU, bytes of all."""
    start = f"| {recipe} | {way} | {num_gpus} |"
    if devices is None:
        return f"{start} {' | '.join(['fails'] * 9)} |"
    ends = [devices[0], devices[-1]]
    counts = [
        " / ".join(f"{device[kind]:.0f}" for device in ends)
        for kind in ("launches", "host_waits", "to_host", "from_host", "to_peers")
    ]
    sums = [
        f"{sum(device[f'bytes_{where}'] for device in devices) / MEGABYTE:.2f}"
        for where in ("to_host", "from_host", "to_peers")
    ]
    travelled = sum(device["bytes_to_host"] + device["bytes_from_host"] for device in devices)
    pinned = sum(device["pinned_bytes"] for device in devices)
    share = f"{100 * pinned / travelled:.1f} %" if travelled else "-"
    return f"{start} {' | '.join([*counts, *sums, share])} |"


if __name__ == "__main__":
    main()
