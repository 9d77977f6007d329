"""The pairs of question and answer in a dialogue, as the documentation defines them."""


def pair_turns(num_turns, *, pairing="alternate", context=0):
    """Returns (first turn of the question, turn of the answer) for each pair of a dialogue.

    The question is `turns[first:answer]`: up to `context` earlier turns, then the turn that is
    answered.

    >>> pair_turns(5), pair_turns(3, pairing="sliding", context=1)
    ([(0, 1), (2, 3)], [(0, 1), (0, 2)])
    """
    stride = {"alternate": 2, "sliding": 1}[pairing]
    questions = range(0, num_turns - 1, stride)
    return [(max(0, question - context), question + 1) for question in questions]
