"""The command line on pretended GPUs, without what their missing values would stop.

They add nothing, so the project's checks of known sums would put the parameters on the CPU and
refuse NCCL, an evaluation would count no examples, a gradient may be anything, and an answer may
have no end and ids of no word.
"""

import sys

import tensorflow as tf

from tests.gpu.values import ignore_values
from towers.devices import placement
from towers.scripts.chatbot.answerer import Answerer
from towers.scripts.commands import generate as generation
from towers.scripts.main import main
from towers.step import evaluation

LONGEST_ANSWER = 5
evaluate_batch = evaluation.EvaluationStep.__call__
read_answers = Answerer._read
generate = generation.generate
while_loop = tf.while_loop


def evaluate_and_count(step, shards, batch_number):
    """Returns the results of a batch as if it had one example."""
    return evaluate_batch(step, shards, batch_number)._replace(weight=tf.constant(1.0))


def while_loop_that_ends(cond, body, loop_vars, **options):
    """Decodes a number of tokens that the host knows; other loops are as they are."""
    if cond.__module__.startswith("towers.models.decoding."):
        return while_loop(lambda place, *_: place < LONGEST_ANSWER, body, loop_vars, **options)
    return while_loop(cond, body, loop_vars, **options)


def read_silence(answerer, decoded, questions):
    """Returns answers of no word, as many as there are."""
    return read_answers(answerer, decoded._replace(ids=tf.fill(decoded.ids.shape, 0)), questions)


def generate_silence(*arguments, **options):
    """Returns texts of no token, as many as there are."""
    return [[] for _ in generate(*arguments, **options)]


if __name__ == "__main__":
    ignore_values()
    placement.trusted_policy = lambda policy, devices: policy
    placement.check_group = lambda devices: None
    evaluation.EvaluationStep.__call__ = evaluate_and_count
    Answerer._read = read_silence
    generation.generate = generate_silence
    tf.while_loop = while_loop_that_ends
    sys.exit(main())
