"""`towers evaluate`: the test metrics of a run's checkpoint."""

from __future__ import annotations

import argparse
import json

from towers.scripts.commands.option_types import positive_int
from towers.scripts.commands.options import (
    add_decoding_options,
    add_device_options,
    add_json_option,
    add_model_options,
    add_reranking_options,
    add_set_option,
    add_sharing_option,
    read_options,
)
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.options import EvaluateOptions
from towers.scripts.wrong_input import wrong_input


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    add_model_options(parser)
    parser.add_argument("--data", metavar="PATH", nargs="+",
                        help="default: the data of the training")  # fmt: skip
    parser.add_argument("--batch-size", type=positive_int, metavar="B", help="default: the run's")
    add_set_option(parser, "a field, such as part=test (default: the run's)")
    parser.add_argument("--classes", action="store_true",
                        help="image runs: also print each class's recall and precision, and which "
                             "classes were taken for which")  # fmt: skip
    add_json_option(parser)
    add_decoding_options(parser)
    add_reranking_options(parser)
    parser.add_argument("--tune", action="store_true",
                        help="chatbots: first search --mmi-weight and --length-reward on held-out "
                             "questions that are not asked afterwards")  # fmt: skip
    add_device_options(parser)
    add_sharing_option(parser)


def run(given: argparse.Namespace) -> int:
    """Prints the metrics, and with --json as one object in the last line."""
    import_tensorflow_quietly()
    from towers.scripts.chatbot.opening import decode_with
    from towers.scripts.classifying.classes import check_images, check_one_label
    from towers.scripts.classifying.confusion import count_confusions, describe
    from towers.scripts.training.options import DecodingOptions
    from towers.scripts.training.run_output import describe_evaluation
    from towers.scripts.training.saved_run import open_evaluation

    with wrong_input():
        decoding = read_options(DecodingOptions, given)
        options = read_options(EvaluateOptions, given)
        evaluation = open_evaluation(options)
        if options.classes:
            check_images(evaluation.session, "--classes")
            check_one_label(evaluation.session)
        tuned = {}
        if options.tune or decoding != DecodingOptions():
            tuned = decode_with(evaluation.session, decoding, tune=options.tune)
    with wrong_input(OSError):  # Such as a file of the data that is gone.
        metrics = {**evaluation.evaluate(show), **tuned}
        confusion = count_confusions(evaluation.session) if options.classes else None
    session, checkpoint = evaluation
    show(describe_evaluation(session, checkpoint.step, metrics))
    if confusion is not None:
        show("\n".join(describe(confusion)))
        metrics["confusion"] = confusion.counts.tolist()
    if given.json:
        metrics["examples"] = round(metrics["examples"])
        metrics[session.recipe.unit] = metrics["examples"]
        source = {"step": checkpoint.step, "checkpoint": str(checkpoint.path)}
        show(json.dumps({**metrics, "part": session.data.evaluated, **source}))
    return 0
