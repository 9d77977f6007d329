"""What a benchmark times, in which order, and in which process."""

import pytest

from towers.scripts.baselines.contenders import contenders_of, in_processes, most_towers
from towers.scripts.baselines.options import BenchmarkOptions


@pytest.mark.parametrize(
    "options, processes",
    [
        ({"towers": (1, 2)}, [["towers 1"], ["towers 2"]]),
        ({"towers": (2,), "against": ("plain",)}, [["towers 2"], ["plain"]]),
        ({"towers": (1,), "against": ("mirrored", "fit")}, [["towers 1", "fit"], ["mirrored 2"]]),
        (
            {"towers": (4, 1), "against": ("mirrored", "plain", "mirrored_fit")},
            [["towers 4"], ["towers 1", "plain"], ["mirrored 4"], ["mirrored_fit 4"]],
        ),
        (
            {"towers": (1, 2), "exchange": ("packs", "nccl")},
            [["towers 1"], ["towers 2", "packs 2", "nccl 2"]],
        ),
        ({"towers": (1, 2), "gpus_per_tower": 2}, [["towers 1 of 2"], ["towers 2 of 2"]]),
    ],
    ids=str,
)
def test_each_number_of_towers_and_each_mirrored_rival_has_a_process(options, processes):
    found = in_processes(contenders_of(BenchmarkOptions(**options)))
    assert [[contender.name for contender in group] for group in found] == processes


def test_the_table_has_towers_first_and_then_the_rivals_as_they_were_given():
    options = BenchmarkOptions(towers=(2, 1), against=("mirrored", "fit", "plain"))
    found = contenders_of(options)
    assert [one.name for one in found] == ["towers 2", "towers 1", "mirrored 2", "fit", "plain"]
    assert [one.number for one in found] == [2, 1, 2, 1, 1]
    assert most_towers(found) == 2
