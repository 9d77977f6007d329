"""Files of other formats that hold an image network: LiteRT (TFLite) and ONNX."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from towers.ground.extras import import_extra
from towers.ground.private_apis import flatten_layers
from towers.scripts.classifying.predictions import classify_pixels
from towers.scripts.training.session import Session
from towers.scripts.wrong_input import WrongInputError

FILES = {"litert": "model.tflite", "onnx": "model.onnx"}


def write_file(session: Session, path: Path, file_format: str) -> str:
    """Writes an image network as a file of another format, by Keras; it computes in 32 bits.

    Returns a line about what it takes.

    Raises:
        WrongInputError: the format lacks what the network has.
    """
    if session.model.compute_dtype == "float64":
        raise WrongInputError(
            f"--format {file_format} takes no network of float64, which its runtimes do not "
            "compute. Leave out --format, or train without --precision float64."
        )
    spec, form = session.data.test.source.input_spec, ""
    if spec.dtype == tf.string:
        spec = tf.TensorSpec(session.model.input.shape, tf.float32)
        form = ": the central square of each picture, from 0 to 255"
    compute_in_32_bits(session.model)
    classifier = Classifier(session)
    classifier(tf.zeros([1, *spec.shape[1:]], spec.dtype))
    signature = [tf.TensorSpec(spec.shape, spec.dtype, name="images")]
    if file_format == "onnx":
        add_erfc()
    with Failures(), warnings.catch_warnings():  # tf2onnx and NumPy 2.
        warnings.simplefilter("ignore", FutureWarning)
        classifier.export(path, format=file_format, input_signature=signature, verbose=False)
    return f"`{path.name}` returns the same for `images`, {spec.dtype.name} {spec.shape}{form}."


class Classifier(keras.Model):
    """An image network as its export calls it: images to probabilities and classes."""

    def __init__(self, session: Session):
        super().__init__(dtype="float32")
        self.network, self._classify = session.model, classify_pixels(session)

    def call(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns what the signature `classify` returns."""
        return self._classify(images)


def compute_in_32_bits(model: keras.Model) -> None:
    """Makes layers that compute in 16 bits compute in float32, as their variables are.

    Neither format's own operations know bfloat16.
    """
    for layer in flatten_layers(model):
        if layer.compute_dtype in ("bfloat16", "float16"):
            layer.dtype_policy = "float32"


def add_erfc() -> None:
    """Makes tf2onnx write `Erfc`, of which TensorFlow makes GELU, as 1 - `Erf`."""
    handler, utils = (
        import_extra(f"tf2onnx.{name}", "onnx", "--format onnx converts the network")
        for name in ("handler", "utils")
    )

    def convert(graph: Any, node: Any, **_: Any) -> None:
        node.type, (output,) = "Erf", node.output
        one = np.ones([], utils.map_onnx_to_numpy_type(graph.get_dtype(output)))
        constant = graph.make_const(f"{node.name}/one", one).output[0]
        graph.insert_new_node_on_output("Sub", output, inputs=[constant, output])

    handler.tf_op.register_handler(convert, 9, ["Erfc"], "", {})


class Failures(logging.Handler):
    """A scope that raises WrongInputError at its end if tf2onnx logged an error: it raises none.

    Its file would be none of ONNX's, or one of another network.
    """

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._logger, self._found = logging.getLogger("tf2onnx"), list[str]()

    def emit(self, record: logging.LogRecord) -> None:
        """Keeps an error."""
        self._found.append(record.getMessage().partition("\n")[0])

    def __enter__(self) -> None:
        self._logger.addHandler(self)
        self._logger.propagate = False

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate = True
        if self._found:
            raise WrongInputError(
                f"ONNX cannot hold this network: {self._found[0]}. Use --format litert, or "
                "another network."
            )
