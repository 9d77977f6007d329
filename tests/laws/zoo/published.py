"""Models of `keras.applications`, and of KerasHub where it is installed; random weights."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import keras
import tensorflow as tf

from tests.laws.zoo.members import (
    Member,
    classified,
    each_position_classified,
    pictures,
    tokens,
)

HAS_KERAS_HUB = importlib.util.find_spec("keras_hub") is not None


def application(name: str, **options: Any) -> keras.Model:
    """Returns a network of `keras.applications`, small, for four classes."""
    return getattr(keras.applications, name)(
        weights=None, input_shape=(32, 32, 3), classes=4, classifier_activation=None, **options
    )


def applied(name: str, **options: Any) -> Member:
    return Member(functools.partial(application, name, **options), pictures(32), classified)


def backbone(name: str, **sizes: Any) -> keras.Model:
    """Returns a network of KerasHub."""
    import keras_hub

    with quietly():
        return getattr(keras_hub.models, name)(**sizes)


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """The scope in which KerasHub's T5 may build its layers late and drop a mask."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


class Tokens(keras.Model):
    """A backbone of KerasHub and logits for each of its tokens."""

    def __init__(self, name: str, kinds: tuple[str, ...], **sizes: Any):
        super().__init__()
        self.backbone = backbone(name, vocabulary_size=13, dropout=0.0, **sizes)
        self.logits = keras.layers.Dense(13)
        self.kinds = kinds

    def call(self, ids, training=False):
        inputs = {
            kind: tf.ones_like(ids) if "mask" in kind else tf.zeros_like(ids) for kind in self.kinds
        }
        inputs |= {kind: ids for kind in self.kinds if kind.endswith("token_ids")}
        with quietly():
            outputs = self.backbone(inputs, training=False)
        if isinstance(outputs, dict):
            outputs = outputs.get("sequence_output", outputs.get("decoder_sequence_output"))
        return self.logits(outputs)


BERT = ("token_ids", "padding_mask", "segment_ids")
GPT = ("token_ids", "padding_mask")
T5 = (
    "encoder_token_ids",
    "encoder_padding_mask",
    "decoder_token_ids",
    "decoder_padding_mask",
)
SIZES = {"num_layers": 2, "num_heads": 2, "hidden_dim": 8, "intermediate_dim": 12}


def vit() -> keras.Model:
    """A Vision Transformer and logits."""
    body = backbone(
        "ViTBackbone",
        image_shape=(16, 16, 3), patch_size=8, num_layers=2, num_heads=2, hidden_dim=8, mlp_dim=12,
    )  # fmt: skip
    outputs = keras.layers.Dense(4)(body.output[:, 0])
    return keras.Model(body.input, outputs)


def language(name: str, kinds: tuple[str, ...], **sizes: Any) -> Member:
    make = functools.partial(Tokens, name, kinds, **sizes)
    return Member(make, tokens(6, 13), each_position_classified)


MEMBERS = {
    "mobile_net": applied("MobileNet", alpha=0.25),
    "mobile_net_v2": applied("MobileNetV2", alpha=0.35),
    "mobile_net_v3": applied("MobileNetV3Small", alpha=0.75, include_preprocessing=False),
    "res_net_50_v2": applied("ResNet50V2"),
    "efficient_net": applied("EfficientNetB0"),
    "dense_net": applied("DenseNet121"),
    "vgg_16": applied("VGG16"),
}
HUB_MEMBERS = {
    "hub_bert": language("BertBackbone", BERT, max_sequence_length=6, **SIZES),
    "hub_gpt2": language("GPT2Backbone", GPT, max_sequence_length=6, **SIZES),
    "hub_llama": language(
        "LlamaBackbone", GPT, num_layers=2, num_query_heads=2, num_key_value_heads=1,
        hidden_dim=8, intermediate_dim=12,
    ),
    "hub_t5": language("T5Backbone", T5, **SIZES),
    "hub_vit": Member(vit, pictures(16), classified),
}  # fmt: skip
