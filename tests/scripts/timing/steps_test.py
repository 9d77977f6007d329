"""What a benchmark times, in which order, and in which process."""

import pytest

from towers.scripts.timing.options import StepTimingOptions
from towers.scripts.timing.steps import Contender, in_processes, towers_of


def built(task):
    """Stands for a way to train, which is not built here."""


@pytest.mark.parametrize(
    "options, processes",
    [
        ({"towers": (1, 2)}, [["towers 1"], ["towers 2"]]),
        (
            {"towers": (1, 2), "exchange": ("packs", "nccl")},
            [["towers 1"], ["towers 2", "packs 2", "nccl 2"]],
        ),
        ({"towers": (1, 2), "gpus_per_tower": 2}, [["towers 1 of 2"], ["towers 2 of 2"]]),
    ],
    ids=str,
)
def test_each_number_of_towers_has_a_process(options, processes):
    found = in_processes(towers_of(StepTimingOptions("shapes", **options)))
    assert [[contender.name for contender in group] for group in found] == processes


def test_what_must_be_alone_has_a_process():
    ways = [Contender("one", 2, built), Contender("other", 2, built, alone=True)]
    found = in_processes([*towers_of(StepTimingOptions("shapes", towers=(2,))), *ways])
    assert [[contender.name for contender in group] for group in found] == [
        ["towers 2", "one"],
        ["other"],
    ]
