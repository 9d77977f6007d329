"""`towers predict`: the classes of image files, by a trained image network."""

from __future__ import annotations

import argparse
import dataclasses
import json

from towers.scripts.commands.option_types import positive_int
from towers.scripts.commands.options import add_json_option, add_model_options, read_options
from towers.scripts.quiet import import_tensorflow_quietly
from towers.scripts.shown import show
from towers.scripts.training.options import DeviceOptions, EvaluateOptions
from towers.scripts.wrong_input import wrong_input


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """The files, and what is printed about each.

    Attributes:
        run_dir: the run's directory.
        files: image files and folders.
        checkpoint: best or latest.
        top: how many classes of each file.
        json: whether the last line is one JSON object.
    """

    run_dir: str
    files: tuple[str, ...]
    checkpoint: str = "best"
    top: int = 3
    json: bool = False


def add_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of the command."""
    parser.description = (
        "Prints the most probable classes of image files. Images are scaled to the network's size."
    )
    add_model_options(parser)
    parser.add_argument("files", nargs="+", metavar="FILE",
                        help="pictures, or folders of them")  # fmt: skip
    parser.add_argument("--top", type=positive_int, metavar="N",
                        help="so many classes of each file (default: 3)")  # fmt: skip
    add_json_option(parser)


def run(given: argparse.Namespace) -> int:
    """Prints a line for each file."""
    import_tensorflow_quietly()
    from towers.scripts.classifying.classes import check_images
    from towers.scripts.classifying.predictions import find_images, predict
    from towers.scripts.training.evaluation import open_evaluation

    options = read_options(PredictOptions, given)
    with wrong_input():
        paths = find_images(options.files)
        evaluation = open_evaluation(
            EvaluateOptions(options.run_dir, DeviceOptions(towers=1), checkpoint=options.checkpoint)
        )
        check_images(evaluation.session, "`towers predict`")
    predictions = []
    with wrong_input():  # Such as a file that is no image.
        for prediction in predict(evaluation.session, paths, options.top):
            predictions.append(prediction)
            shares = [f"{name} {share:.1%}" for name, share in prediction.probabilities.items()]
            show(f"{prediction.path} | {' | '.join(shares)}")
    if options.json:
        found = {str(path): probabilities for path, probabilities in predictions}
        show(json.dumps({"step": evaluation.checkpoint.step, "predictions": found}))
    return 0
