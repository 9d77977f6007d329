"""Which layers need no trace to tell whether their rows meet: most of those that Keras wrote."""

from __future__ import annotations

import itertools
import re
from typing import Any

import keras
import tensorflow as tf

from towers.ground.private_apis import arguments_of, flatten_layers
from towers.layers.held import is_plain
from towers.variables.tower_scope import is_of

# What models add, scale and activate by; a trace, which is slow, tells of all other operations. Of
# a logarithm or a limit, a few made-up rows may show nothing.
ELEMENTWISE = re.compile(
    "Absolute|Add|Cast|(True)?Divide|Elu|Gelu|HardSigmoid|HardSilu|LeakyRelu|Multiply|Negative|"
    "Relu6?|Sigmoid|Silu|Softplus|Square|Subtract|Tanh"
)
# Functions of TensorFlow's by which layers of Keras's activate, and layers of Keras's that compute
# each row from itself, unless along an axis of the rows, or in which any rows show that they meet.
# A trace, which is slow, tells of all others.
ACTIVATIONS = re.compile(
    "relu6?|[sg]?elu|leaky_relu(_v2)?|silu|swish|sigmoid|tanh|soft(plus|sign)|(log_)?softmax(_v2)?"
)
BY_ROWS = re.compile(
    "Activation|ActivityRegularization|Add|(Adaptive|Global)?(Average|Max)Pooling.D|AugMix|"
    "AutoContrast|Average|(Alpha|Gaussian)?Dropout|BatchNormalization|Bidirectional|"
    "CategoryEncoding|CenterCrop|Concatenate|ContrastLimitedAdaptiveHistogramEqualization|"
    "((Depthwise|Separable)?Conv|Cropping|UpSampling|ZeroPadding).D(Transpose)?|CustomScaleLayer|"
    "CutMix|Dense|Discretization|Dot|ELU|EinsumDense|(Reversible)?Embedding|Equalization|Flatten|Functional|"
    "GaussianNoise|(Group|Layer|RMS|Spectral|Unit)?Normalization|GroupedQueryAttention|"
    "HashedCrossing|Hashing|Identity|InputLayer|(Integer|String)Lookup|LayerScale|LeakyReLU|"
    "(LSTM|GRU|SimpleRNN|ConvLSTM.D)(Cell)?|Masking|Maximum|Minimum|MixUp|MultiHeadAttention|"
    "Multiply|P?ReLU|Permute|Pipeline|RNN|Rand(Augment|om.*)|RepeatVector|Rescaling|Reshape|"
    "Resizing|STFTSpectrogram|Sequential|Softmax|Solarization|SpatialDropout.D|"
    "StackedRNNCells|StochasticDepth|Subtract|TFD(Cast|Concat|Identity)|"
    "TimeDistributed"
)


def needs_trace(layer: Any, repeated_rows: str) -> bool:
    """Returns whether it is not known where the numbers of a layer come from.

    Keras wrote most layers, and TensorFlow most functions in them; what they look up matters only
    where repeated rows are not summed. What operations between layers compute is a user's.
    """
    layers = flatten_layers(layer)
    has_table = any(isinstance(one, keras.layers.Embedding) for one in layers)
    parts = itertools.chain.from_iterable(getattr(one, "operations", ()) for one in layers)
    others = (one for one in parts if not isinstance(one, keras.layers.Layer))
    is_own = not is_plain(layer) or not all(map(is_elementwise, others))
    return is_own or any(map(may_couple, layers)) or (has_table and repeated_rows == "keras")


def may_couple(layer: keras.layers.Layer) -> bool:
    """Returns whether rows may meet in a layer of Keras's: by its kind, axes or activation."""
    given = tf.nest.flatten(arguments_of([layer]))
    fewest = min((one.ndim for one in given if isinstance(one, keras.KerasTensor)), default=None)
    axes = tf.nest.flatten([getattr(layer, name, None) for name in ("axis", "attention_axes")])
    axes += [-1] if isinstance(layer, keras.layers.Activation) else []
    numbers = [one for one in axes if isinstance(one, int)]
    is_along_rows = any(one == 0 or one < -1 or fewest == 1 for one in numbers)
    functions = [one for one in vars(layer).values() if callable(one) and is_of(one, "tensorflow.")]
    are_known = all(ACTIVATIONS.fullmatch(getattr(one, "__name__", "")) for one in functions)
    is_known = bool(BY_ROWS.fullmatch(type(layer).__name__))
    if isinstance(layer, keras.layers.Attention):  # Of rows without a time, all attend to all.
        is_known = fewest is not None and fewest > 2
    if isinstance(layer, keras.layers.TextVectorization):  # It pads to the longest of a batch.
        config = layer.get_config()
        is_known = config["output_mode"] != "int" or bool(config["output_sequence_length"])
    return is_along_rows or not are_known or not is_known


def is_elementwise(operation: keras.Operation) -> bool:
    """Returns whether each number that it computes is of one place of its arguments."""
    kind = type(operation)
    if not (ELEMENTWISE.fullmatch(kind.__name__) and is_of(kind, "keras.src.")):
        return False
    given = [tf.nest.flatten(one) for one in arguments_of([operation])]
    ranks = [{leaf.ndim for leaf in one if isinstance(leaf, keras.KerasTensor)} for one in given]
    return all(len(each) == 1 for each in ranks)  # Else rows might meet what is no row.
