"""Law 21: killed, or without power, at any operation on files, the same command goes on.

`-m slow` tries every operation, and a sample of them; `python -m tests.faults --all` tries them
unattended. The default tier kills a run twice at any moment, and single writers: of checkpoints,
run directories, vocabularies.
"""

import random

import pytest

from tests.faults import scenarios
from tests.faults.injector import injector, try_all
from tests.faults.kills import kill_often


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with injector(tmp_path_factory.mktemp("injector")) as server:
        yield server


@pytest.fixture(scope="module")
def expected(server, tmp_path_factory):
    return scenarios.ExpectedRuns(server, tmp_path_factory.mktemp("expected"))


def sampled(count):
    """Returns a function that chooses so many of all operations, evenly and by chance."""

    def choose(number):
        print(f"seed {(seed := random.randrange(1000))}")
        return sorted(random.Random(seed).sample(range(1, number + 1), count))

    return choose


def test_a_run_goes_on_after_a_sample_of_ends(server, expected, tmp_path):
    with scenarios.scenario("fresh", expected, tmp_path) as scenario:
        try_all(server, scenario, points=sampled(1), ways=("power cut",))


@pytest.mark.slow
@pytest.mark.parametrize("name", scenarios.NAMES)
def test_a_command_goes_on_after_every_end(name, server, expected, tmp_path, capsys):
    with scenarios.scenario(name, expected, tmp_path) as scenario:
        num_operations, counts = try_all(server, scenario)
    with capsys.disabled():
        print(f"\n{name}: {num_operations} operations, {counts}")


@pytest.mark.parametrize(
    "count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (20, 1000))]
)
def test_a_run_that_was_killed_at_random_moments_ends_as_one_that_was_not(
    count, server, expected, capsys
):
    steps = 2 if count == 2 else 8  # Those of the run that the sample of ends is compared with.
    done = kill_often(
        server,
        lambda folder: scenarios.train(folder, steps),
        scenarios.SameRun(expected(steps)),
        count,
        duration=expected.seconds(steps),
        seed=random.randrange(1000),
    )
    assert done.kills == count and (done.with_checkpoint or count < 20)
    with capsys.disabled():
        print(f"\n{done}")
