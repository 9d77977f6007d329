"""Every turn is paired as the pairing says, with no more context than there is."""

import pytest

from tests.data.pairing import pair_turns
from towers.data.prepared import DialoguePreparation
from towers.data.text import TextSettings

SPACES = TextSettings("en", tokenizer="spaces")


@pytest.mark.parametrize(
    ("num_turns", "pairs"),
    [(0, []), (1, []), (2, [(0, 1)]), (3, [(0, 1)]), (6, [(0, 1), (2, 3), (4, 5)])],
)
def test_alternate_turns_are_in_one_pair_at_most(num_turns, pairs):
    assert pair_turns(num_turns) == pairs


@pytest.mark.parametrize(
    ("num_turns", "pairs"), [(0, []), (1, []), (2, [(0, 1)]), (4, [(0, 1), (1, 2), (2, 3)])]
)
def test_sliding_turns_answer_the_one_before(num_turns, pairs):
    assert pair_turns(num_turns, pairing="sliding") == pairs


@pytest.mark.parametrize("pairing", ["alternate", "sliding"])
@pytest.mark.parametrize("context", [0, 1, 2, 9])
def test_context_is_what_was_said_just_before(pairing, context):
    without = pair_turns(7, pairing=pairing)
    with_context = pair_turns(7, pairing=pairing, context=context)
    assert [answer for _, answer in with_context] == [answer for _, answer in without]
    assert [answer - first for first, answer in with_context] == [
        1 + min(context, question) for question, _ in without
    ]


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"alternate, sliding. Received 'both'"):
        DialoguePreparation(SPACES, pairing="both")
    with pytest.raises(
        ValueError, match=r"context must be a whole number of at least 0. Received -1"
    ):
        DialoguePreparation(SPACES, context=-1)
    with pytest.raises(ValueError, match=r"at least 22, of which 21 are special. Received 21"):
        DialoguePreparation(SPACES, vocabulary_size=21, copy_unknown=True)
