"""Image networks: from pixels to probabilities, with the preparation of the pixels inside."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from towers.scripts.classifying.predictions import class_names, classify_images
from towers.scripts.exporting.folders import write_model, write_settings
from towers.scripts.training.options import DeviceOptions, EvaluateOptions, ModelOptions
from towers.scripts.training.saved_run import open_evaluation
from towers.scripts.training.session import Session


def classifier_writer(options: ModelOptions) -> Callable[[Path], str]:
    """Returns `write(folder)`, which exports an image network and returns a line about it.

    The run's data must be there: the network keeps its preparation of the pixels.

    Raises:
        ValueError: the run, its checkpoint or its data cannot be used.
        OSError: a file cannot be read.
    """
    evaluation = open_evaluation(
        EvaluateOptions(options.run_dir, DeviceOptions(towers=1), checkpoint=options.checkpoint)
    )
    return functools.partial(write_classifier, evaluation.session)


def write_classifier(session: Session, folder: Path) -> str:
    """Writes the network of an image run.

    The signature `classify` takes `images` as the files of the data hold them, uint8 [batch,
    height, width, channels], or string [batch] for a recipe that reads picture files. It returns
    `probabilities`, float32 [batch, classes], and `classes`, int64 [batch], the most probable one
    of each. `settings.json` has the names of the classes.
    """
    write_model(session.model, {"classify": classify_images(session)}, folder)
    write_settings({"classes": list(class_names(session)), **(session.data.about or {})}, folder)
    return f"its signature classify takes {session.data.test.source.input_description}"
