"""Tasks of KerasHub, whose own `fit` preprocesses raw inputs; tiny backbones, random weights."""

from __future__ import annotations

import functools

import keras
import numpy as np

from tests.kinds.registry import Program, adam, batches, kind, labels, random, sgd

hub_kind = functools.partial(kind, "hub", needs="keras_hub")
BERT_WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "the",
    "film",
    "is",
    "good",
    "bad",
    "not",
]
GPT_WORDS = ["<|endoftext|>", "a", "b", "c", "Ġ", "ab", "Ġa", "Ġb"]
SIZES = {
    "num_layers": 1, "num_heads": 2, "hidden_dim": 4, "intermediate_dim": 6, "dropout": 0.0,
    "max_sequence_length": 8,
}  # fmt: skip
CROSS_ENTROPY = keras.losses.SparseCategoricalCrossentropy


def sentences(words: list[str]) -> np.ndarray:
    """Returns 24 texts of two to six words."""
    draw = random()
    return np.array([" ".join(draw.choice(words, draw.integers(2, 7))) for _ in range(24)])


def images(size: int = 20) -> np.ndarray:
    return random().integers(0, 256, (24, size, size, 3)).astype("float64")


def bert_tokenizer():
    import keras_hub

    return keras_hub.models.BertTokenizer(vocabulary=BERT_WORDS)


def bert_backbone():
    import keras_hub

    return keras_hub.models.BertBackbone(vocabulary_size=len(BERT_WORDS), **SIZES)


def bert_classifier():
    """Returns a classifier of raw texts."""
    import keras_hub

    preprocessor = keras_hub.models.BertTextClassifierPreprocessor(
        bert_tokenizer(), sequence_length=8
    )
    return keras_hub.models.BertTextClassifier(
        bert_backbone(), num_classes=2, preprocessor=preprocessor, dropout=0.0
    )


@hub_kind()
def hub_text_classifier_of_raw_texts() -> Program:
    model = bert_classifier()
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((sentences(BERT_WORDS[5:]), labels(2))))


@hub_kind()
def hub_text_classifier_as_it_compiles_itself() -> Program:
    """Without `compile`: loss, metrics and optimizer are the task's own; arrays as data."""
    model = bert_classifier()
    return Program(model, (sentences(BERT_WORDS[5:])[:17], labels(2)[:17]), {"batch_size": 8})


@hub_kind(said=("Gradients do not exist for variables ..pooled_dense/kernel:UserWarning",))
def hub_masked_lm_of_inputs_made_before() -> Program:
    import keras_hub

    model = keras_hub.models.BertMaskedLM(bert_backbone(), preprocessor=None)
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), weighted_metrics=["accuracy"])
    ids, places = labels(6, 8) + 5, np.sort(labels(8, 2), 1)
    inputs = {
        "token_ids": ids, "mask_positions": places, "padding_mask": np.ones_like(ids),
        "segment_ids": np.zeros_like(ids),
    }  # fmt: skip
    targets = np.take_along_axis(ids, places, 1)
    return Program(model, batches((inputs, targets, random().uniform(size=(24, 2)))))


def gpt_causal_lm():
    """Returns a language model of raw texts."""
    import keras_hub

    tokenizer = keras_hub.models.GPT2Tokenizer(
        vocabulary={word: place for place, word in enumerate(GPT_WORDS)},
        merges=["a b", "Ġ a", "Ġ b"],
    )
    preprocessor = keras_hub.models.GPT2CausalLMPreprocessor(tokenizer, sequence_length=8)
    backbone = keras_hub.models.GPT2Backbone(vocabulary_size=len(GPT_WORDS), **SIZES)
    return keras_hub.models.GPT2CausalLM(backbone, preprocessor=preprocessor)


@hub_kind()
def hub_causal_lm_of_raw_texts() -> Program:
    model = gpt_causal_lm()
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), weighted_metrics=["accuracy"])
    return Program(model, batches(sentences(["a", "b", "ab", "c"])))


@hub_kind(tolerance=1e-9)  # Keras makes one of the two added matrices in float32.
def hub_lora() -> Program:
    model = gpt_causal_lm()
    model.backbone.enable_lora(2)
    model.compile(adam(), CROSS_ENTROPY(from_logits=True), weighted_metrics=["accuracy"])
    return Program(model, batches(sentences(["a", "b", "ab", "c"])))


@hub_kind()
def hub_image_classifier_of_raw_pictures() -> Program:
    import keras_hub

    converter = keras_hub.layers.ViTImageConverter(image_size=(16, 16), scale=1 / 255)
    backbone = keras_hub.models.ViTBackbone(
        image_shape=(16, 16, 3), patch_size=8, num_layers=1, num_heads=2, hidden_dim=4, mlp_dim=6
    )
    model = keras_hub.models.ViTImageClassifier(
        backbone, num_classes=3, pooling="token",
        preprocessor=keras_hub.models.ViTImageClassifierPreprocessor(image_converter=converter),
    )  # fmt: skip
    model.compile(sgd(0.05), CROSS_ENTROPY(from_logits=True), metrics=["accuracy"])
    return Program(model, batches((images(), labels(3))))


def res_net_backbone(**options):
    import keras_hub

    return keras_hub.models.ResNetBackbone(
        input_conv_filters=[64], input_conv_kernel_sizes=[3], stackwise_num_filters=[64, 8, 8],
        stackwise_num_blocks=[1, 1, 1], stackwise_num_strides=[1, 2, 2], block_type="basic_block",
        **options,
    )  # fmt: skip


@hub_kind()
def hub_res_net_with_frozen_normalisation() -> Program:
    import keras_hub

    backbone = res_net_backbone(image_shape=(16, 16, 3))
    for layer in backbone.layers:
        layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)
    model = keras_hub.models.ResNetImageClassifier(backbone, num_classes=3)
    model.compile(sgd(0.05), CROSS_ENTROPY(), metrics=["accuracy"])
    return Program(model, batches((images(16) / 255, labels(3))))


@hub_kind(tolerance=1e-8)  # Part of it computes in float32.
def hub_object_detector() -> Program:
    """Raw boxes and classes; the label encoder, the losses and their normaliser are the task's."""
    import keras_hub

    class Detector(keras_hub.models.RetinaNetObjectDetector):
        def compute_loss(self, x, y, y_pred, sample_weight=None, **more):
            # The task's own writes into the labels, which `tf.function` refuses.
            return super().compute_loss(x, dict(y), y_pred, sample_weight, **more)

    encoder = res_net_backbone(image_shape=(32, 32, 3))
    for layer in encoder.layers:
        layer.trainable = not isinstance(layer, keras.layers.BatchNormalization)
    backbone = keras_hub.models.RetinaNetBackbone(
        encoder, min_level=3, max_level=4, use_p5=False, image_shape=(32, 32, 3)
    )
    anchors = keras_hub.layers.AnchorGenerator(
        "xyxy", min_level=3, max_level=4, num_scales=1, aspect_ratios=[1.0], anchor_size=1.0
    )
    model = Detector(
        backbone, num_classes=2, bounding_box_format="xyxy", anchor_generator=anchors,
        pre_logits_num_conv_layers=1,
    )  # fmt: skip
    model.compile(
        keras.optimizers.SGD(0.01, global_clipnorm=1.0),
        box_loss=keras.losses.Huber(reduction="sum"),
        classification_loss=keras.losses.BinaryFocalCrossentropy(from_logits=True, reduction="sum"),
    )
    corners = 4.0 + 8 * labels(3, 2, 2) + random().uniform(0, 1, (24, 2, 2))  # Near to anchors.
    boxes = np.concatenate([corners, corners + 8], -1)
    targets = {"boxes": boxes, "labels": labels(2, 2).astype("float64")}
    return Program(model, batches((images(32) / 255, targets)))
