"""`towers predict`: classifies image files with a trained network.

Prints the most probable classes of image files. Images are scaled to the network's size. A file
that is not an image is named and skipped, and then the exit code is 2.

    towers predict runs/shapes photo.png
    towers predict runs/shapes photos/ --top 1 --json
"""

from __future__ import annotations

import csv
import dataclasses
import io
import sys
from typing import TYPE_CHECKING, Annotated

from towers.ground.quiet import import_tensorflow_quietly
from towers.scripts.options.setting import NOT_BLANK, Count, Flag
from towers.scripts.shown import show, show_json
from towers.scripts.training.options import DeviceOptions, EvaluateOptions, ModelOptions
from towers.scripts.wrong_input import WrongInputError, wrong_input

if TYPE_CHECKING:
    from towers.scripts.classifying.predictions import Prediction


@dataclasses.dataclass(frozen=True)
class PredictOptions(ModelOptions):
    """The model and the files, and what is printed about each.

    Attributes:
        files: pictures, or folders of them.
        top: number of classes to print for each file.
        csv: print lines of path, class and probability instead of text.
        json: print one JSON object as the last line.
    """

    files: Annotated[tuple[str, ...], NOT_BLANK, "FILE", Flag(is_argument=True, nargs="+")] = ()
    top: Count = 3
    csv: bool = False
    json: bool = False


def run(options: PredictOptions) -> int:
    """Prints a line for each file; those that are no images do not stop the others."""
    import_tensorflow_quietly()
    from towers.scripts.classifying.predictions import Refusal, check_images, find_images, predict
    from towers.scripts.training.saved_run import open_evaluation

    with wrong_input():
        check_images(options.run_dir, "`towers predict`")
        paths = find_images(options.files)
        session, checkpoint = open_evaluation(
            EvaluateOptions(options.run_dir, options.checkpoint, devices=DeviceOptions(towers=1))
        )
    predictions, refusals = [], []
    if options.csv:
        show("path,class,probability")
    for result in predict(session, paths, options.top):
        if isinstance(result, Refusal):
            refusals.append(result)
            show(result.reason, file=sys.stderr)
        else:
            predictions.append(result)
            show(line_of(result, as_csv=options.csv))
    if options.json:
        found = {str(path): probabilities for path, probabilities in predictions}
        refused = {str(path): reason for path, reason in refusals}
        show_json({"step": checkpoint.step, "predictions": found, "refused": refused})
    if refusals:
        raise WrongInputError(
            f"{len(refusals)} of {len(paths)} files cannot be predicted; the lines above say why."
        )
    return 0


def line_of(prediction: Prediction, *, as_csv: bool) -> str:
    """Returns what is printed of a prediction; as CSV a line for each class."""
    shares = prediction.probabilities.items()
    if not as_csv:
        return f"{prediction.path} | {' | '.join(f'{name} {one:.1%}' for name, one in shares)}"
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows((prediction.path, name, f"{one:.6f}") for name, one in shares)
    return text.getvalue().removesuffix("\n")
