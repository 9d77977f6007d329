"""Tries every end of every command, unattended: `python -m tests.faults --all`.

It goes on after a failure, and after it was stopped: what was tried stands in the file of --log.
The ends are tried in an order by chance, so that a part of them is an even sample.
"""

import argparse
import collections
import contextlib
import json
import pathlib
import random
import sys
import tempfile
import time

from tests.faults.injector import ends_of, injector, operations_of, try_end
from tests.faults.kills import kill_often
from tests.faults.scenarios import NAMES, ExpectedRuns, SameRun, scenario, train

HELD, FAILED, SKIPPED = "held", "FAILED", "ended before"
KILLED_STEPS = 8


def main():
    options = read_options()
    until = time.monotonic() + 60 * options.minutes
    log = pathlib.Path(options.log)
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with injector(folder) as server:
            expected = ExpectedRuns(server, folder / "expected")
            (folder / "expected").mkdir()
            if options.kills:
                failed += kill(server, expected, options, until)
            for one in options.names:
                with scenario(one, expected, folder) as tried:
                    failed += try_scenario(server, one, tried, log, until)
    return min(failed, 1)


def read_options():
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
    parser.add_argument("--all", action="store_true", help="all of these")
    parser.add_argument("--kills", type=int, default=0, metavar="N",
                        help=f"first kill trainings of {KILLED_STEPS} steps N times at "
                             "random")  # fmt: skip
    parser.add_argument("--seed", type=int, default=0, help="of the kills (default: 0)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no trial begins later")
    parser.add_argument("--log", default="faults.jsonl", help="default: %(default)s")
    options = parser.parse_args()
    if unknown := set(options.names) - set(NAMES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    options.names = list(NAMES) if options.all else options.names
    if not options.names and not options.kills:
        parser.error("give some names, --all or --kills N")
    return options


def kill(server, expected, options, until):
    """Kills trainings at random moments; returns the number of failures, 0 or 1."""

    def tell(done):
        print(f"killed at random: {done}", flush=True)

    try:
        kill_often(
            server,
            lambda folder: train(folder, KILLED_STEPS),
            SameRun(expected(KILLED_STEPS)),
            options.kills,
            duration=expected.seconds(KILLED_STEPS),
            seed=options.seed,
            tell=tell,
            until=until,
        )
    except AssertionError as error:
        print(f"killed at random: {FAILED}: {error}", flush=True)
        return 1
    return 0


def try_scenario(server, name, tried, log, until):
    """Tries the ends that are not in the log; returns the number of failures."""
    operations = operations_of(server, tried)
    ends = ends_of(operations, range(1, len(operations) + 1))
    outcomes = dict(read_log(log, name))
    missing = [end for end in ends if end not in outcomes]
    random.Random(0).shuffle(missing)
    for number, way in missing:
        if time.monotonic() > until:
            break
        try:
            ended = try_end(server, tried, operations, number, way)
            outcomes[number, way] = HELD if ended else SKIPPED
        except AssertionError as error:
            outcomes[number, way] = FAILED
            print(f"{name}: {error}", flush=True)
        with log.open("a") as file:
            line = {"name": name, "number": number, "way": way, "outcome": outcomes[number, way]}
            file.write(json.dumps(line) + "\n")
        if not len(outcomes) % 20:
            summarise(name, operations, ends, outcomes)
    summarise(name, operations, ends, outcomes)
    return list(outcomes.values()).count(FAILED)


def read_log(log, name):
    """Yields the ends of a scenario that were tried, with their outcome."""
    with contextlib.suppress(FileNotFoundError):
        for line in map(json.loads, log.read_text().splitlines()):
            if line["name"] == name:
                yield (line["number"], line["way"]), line["outcome"]


def summarise(name, operations, ends, outcomes):
    """Prints how many of the ends were tried, in which ways and with which outcomes."""
    ways = collections.Counter(f"{way} {outcome}" for (_, way), outcome in outcomes.items())
    counts = ", ".join(f"{what}: {count}" for what, count in sorted(ways.items()))
    tried = f"{len(outcomes)} of {len(ends)} ends tried"
    print(f"{name}: {len(operations)} operations, {tried}: {counts}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
