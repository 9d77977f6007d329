"""How long the end of a `tf.data` iterator waits: with TensorFlow's tuner, and as towers read data.

    python -m benchmarks.iterator_ends --seconds 4 --iterators 40

The iterators are read for some seconds and then dropped, one after the other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.flags import Parser, reader
from towers.scripts.options.setting import Amount, Count, setting_of

LONG_SECONDS = 0.1
PAUSE_SECONDS = 0.01


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints a table, and returns 0."""
    parser = Parser(prog="python -m benchmarks.iterator_ends", description=__doc__)
    parser.add_argument(
        "--seconds", type=reader(setting_of(Amount)), default=4.0, help="for which they are read"
    )
    parser.add_argument("--iterators", type=reader(setting_of(Count)), default=40)
    options = parser.parse_args(arguments)
    import_tensorflow_quietly()
    import towers

    print(f"| opened by | ends of more than {LONG_SECONDS} s | longest, s |\n|---|---|---|")
    for opened_by in (iter, towers.engine.iterator_of):
        ends = ends_of(opened_by, options.iterators, options.seconds)
        long = sum(end > LONG_SECONDS for end in ends)
        print(f"| {opened_by.__name__} | {long} of {len(ends)} | {max(ends):.2f} |", flush=True)
    return 0


def ends_of(opened_by: Callable[[Any], Iterator[Any]], number: int, seconds: float) -> list[float]:
    """Returns the seconds that each iterator takes to end after it was read for so long."""
    import tensorflow as tf

    dataset = tf.data.Dataset.range(2**40).batch(32).prefetch(2)
    iterators = [opened_by(dataset) for _ in range(number)]
    until, ends = time.monotonic() + seconds, []
    while time.monotonic() < until:
        list(map(next, iterators))
        time.sleep(PAUSE_SECONDS)
    while iterators:
        began = time.monotonic()
        iterators.pop()
        ends.append(time.monotonic() - began)
    return ends


if __name__ == "__main__":
    raise SystemExit(main())
