"""Your own pictures with a network of your choice, from folders, tables or records.

Data:     a folder of class folders, with train/ and val/ or without; a CSV or TSV file of paths and
          labels; or TFRecord or ArrayRecord files
Command:  towers train images --data my_pictures --towers 2
          towers train images --data my_pictures --set network=ResNet50 --set size=224
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from towers.scripts.recipes.shapes import ImageFields
from towers.scripts.shown import show
from towers.scripts.training import fields as common
from towers.scripts.training.catalogue import CACHE
from towers.scripts.training.recipe import Data, Recipe, Trained
from towers.scripts.wrong_input import nearest

if TYPE_CHECKING:
    import keras

    from towers.data.image_files.image_files import ImageFiles, Part
    from towers.data.image_files.preparation import Prepared
    from towers.ground.epochs import Epochs

CHANNELS = 3
UP_TO_1 = common.Bound("from 0 to 1", lambda value: 0 <= value <= 1)
GREY_LEVEL = common.Bound("from 0 to 255", lambda value: 0 <= value <= 255)
USUAL = -1.0
PUBLISHED = "imagenet"
DECAYED = ("cifar_resnet", "cifar_cnn", "fast")
OURS = (*DECAYED, "lenet", "mlp", "softmax")
PART_OF_1 = common.Bound("above 0, at most 1", lambda value: 0 < value <= 1)


@dataclasses.dataclass(frozen=True)
class Fields(ImageFields):
    """The common fields, and:

    Attributes:
        network: cifar_resnet, cifar_cnn, fast, lenet, mlp or softmax, or a name of
            keras.applications such as ResNet50.
        size: height and width of the network's input, in pixels.
        weights: pretrained weights of a keras.applications network: imagenet, which Keras
            downloads, or a file of weights of the network without its top.
        frozen: whether only the head of a keras.applications network is trained.
        dropout_rate: dropout before the head of a keras.applications network.
        depth: layers of cifar_resnet, 6n+2.
        weight_decay: L2 penalty of cifar_resnet, cifar_cnn and fast; -1 for each one's usual value:
            0.0001, 0.004 and 0.00133.
        widths: filters of the three blocks of fast.
        multi_label: whether a picture has any number of labels, joined by | in a table.
        validation_share: fraction that is held out to choose the best checkpoint, if there is no
            val/.
        augmentation: none, flip, shift (by up to two pixels, reflected, and flip),
            crop (the square of central_share at a random place, and flip),
            standard (random resized crop and flip), colour (standard, and brightness,
            contrast and saturation) or randaugment.
        flip: random, or alternating, which mirrors a picture in every second epoch.
        test_views: what an evaluation averages the outputs over: none, flips (a picture and its
            mirror image) or shifts (both, also moved by a pixel: six views).
        smallest_crop: the random resized crop covers at least this fraction of a picture's area.
        central_share: side of the central square used in an evaluation, as a fraction of a
            picture's shorter side.
        standardize: whether our networks see each picture with mean 0 and variance 1, as in the
            tutorial, instead of pixels from -1 to 1.
        magnitude: strength of randaugment.
        mixup: parameter of mixup's beta distribution, such as 0.2; 0 for none.
        label_smoothing: fraction of each label that is spread evenly over all classes.
        max_broken: maximum number of pictures that may be left out because they cannot be decoded.
        columns: names of the path's and the label's columns in a table, if they are not recognised.
        nested: how to treat folders of pictures inside a class folder: refused, classes or one.
        background: grey level behind transparent pictures, from 0 (black) to 255 (white).
        levels: level of 16-bit pictures that becomes 255; 0 for the highest in the data.
        stored_side: `towers prepare` shrinks pictures until their shorter side is this long; 0
            keeps the files' bytes.
    """

    network: str = "cifar_resnet"
    size: Annotated[int, common.POSITIVE] = 64
    weights: str = ""
    frozen: bool = False
    dropout_rate: Annotated[float, common.FRACTION] = 0.0
    depth: int = 20
    weight_decay: float = USUAL
    widths: tuple[int, ...] = (64, 256, 256)
    multi_label: bool = False
    validation_share: Annotated[float, common.FRACTION] = 0.1
    augmentation: str = "standard"
    flip: common.Flip = "random"
    test_views: common.Views = "none"
    smallest_crop: Annotated[float, PART_OF_1] = 0.25
    central_share: Annotated[float, PART_OF_1] = 0.875
    standardize: bool = False
    magnitude: Annotated[float, UP_TO_1] = 0.5
    mixup: Annotated[float, common.NOT_NEGATIVE] = 0.0
    label_smoothing: Annotated[float, common.FRACTION] = 0.0
    max_broken: Annotated[int, common.NOT_NEGATIVE] = 100
    columns: tuple[str, ...] = ()
    nested: str = "refused"
    background: Annotated[int, GREY_LEVEL] = 255
    levels: Annotated[int, common.NOT_NEGATIVE] = 0
    stored_side: Annotated[int, common.NOT_NEGATIVE] = 0


def make_data(
    fields: Fields, folder: Path | None, seed: int, trained: Trained | None = None
) -> Data:
    """Returns the batches, pixels from 0 to 255.

    A trained network keeps its classes, and needs no pictures.
    """
    from towers.data.image_files.image_files import HIGHEST, ImageFiles

    if trained is not None:
        names, highest = tuple(trained.about["classes"]), trained.about.get("highest", 0)
        if folder is None or not folder.exists():
            files = ImageFiles(names, highest=highest or HIGHEST)
            return data_of(fields, files, seed, trained.about)
        return data_of(fields, open_files(fields, folder, class_names=names, highest=highest), seed)
    check_fields(fields)
    files = open_files(fields, folder)
    return data_of(fields, files, seed)._replace(key=content_key(files, fields))


def data_of(
    fields: Fields, image_files: ImageFiles, seed: int, about: dict[str, Any] | None = None
) -> Data:
    """Returns the batches over an image set."""
    from towers.data.folders import PARTS, TRAIN, VALIDATION
    from towers.data.image_files.augmentation import Augmentation
    from towers.data.image_files.batches import image_file_batches
    from towers.data.image_files.decoding import Look
    from towers.data.image_files.image_files import NO_EXAMPLES

    look = Look(fields.background, image_files.highest)

    def batches(part: Part, kind: str, **options: Any) -> Epochs:
        own = common.arguments_for(Augmentation, fields, kind=kind, known=part.known, look=look)
        augmentation, several = Augmentation(**own), fields.multi_label
        return image_file_batches(
            part, image_files.num_classes, fields.batch_size, augmentation, several, **options
        )

    others = [name for name in PARTS if name != TRAIN and name in image_files.parts]
    evaluated = fields.part or (others or [VALIDATION])[0]
    held_out = NO_EXAMPLES if about else image_files.part(evaluated)
    return Data(
        batches(
            image_files.parts.get(TRAIN, NO_EXAMPLES),
            fields.augmentation,
            mixup=fields.mixup,
            seed=seed,
        ),
        batches(held_out, "none", shuffle=False),
        summary="\n".join(image_files.summary),
        about=about
        or {
            "classes": list(image_files.class_names),
            "evaluated": evaluated,
            "highest": image_files.highest,
        },
    )


def open_files(
    fields: Fields, folder: Path | None, threads: int | None = None, **known: Any
) -> ImageFiles:
    """Returns the image set, with what a trained network knows; ValueError if none is given."""
    from towers.data.image_files.image_files import open_image_files
    from towers.data.image_files.listing import Reading

    if folder is None:
        raise ValueError(
            "Recipe images trains on your own pictures: give --data FOLDER, such as one with a "
            "subfolder of pictures for each class."
        )
    return open_image_files(
        folder,
        CACHE,
        Reading(fields.multi_label, fields.columns, fields.nested),
        validation_share=fields.validation_share,
        max_broken=fields.max_broken,
        threads=threads,
        **{"highest": fields.levels, **known},
    )


def content_key(image_files: ImageFiles, fields: Fields) -> str:
    """Returns a digest of the pictures and of the pretrained weights."""
    from towers.data.folders import hash_file

    if not fields.weights:
        return image_files.key
    digest = hashlib.blake2b(image_files.key.encode(), digest_size=16)
    if fields.weights == PUBLISHED:
        digest.update(PUBLISHED.encode())
        return digest.hexdigest()
    return hash_file(fields.weights, digest)


def check_fields(fields: Fields) -> None:
    """Raises ValueError for fields that do not go together."""
    from towers.data.folders import PARTS
    from towers.data.image_files.listing import NESTED
    from towers.ground.arguments import check_choice
    from towers.models import applications

    is_ours = fields.network in OURS
    if not is_ours and fields.network not in applications.application_names():
        known = [*OURS, *applications.application_names()]
        raise ValueError(f"There is no network {fields.network!r}.{nearest(fields.network, known)}")
    if is_ours and (fields.weights or fields.frozen):
        raise ValueError(
            "weights and frozen are for networks of keras.applications. Received "
            f"network={fields.network}; leave them out."
        )
    if fields.standardize and not is_ours:
        raise ValueError(
            f"{fields.network} prepares its own pixels, as in Keras. Leave out standardize, or "
            f"choose one of {', '.join(OURS)}."
        )
    if fields.weight_decay != USUAL and fields.network not in DECAYED:
        raise ValueError(
            f"weight_decay is for {', '.join(DECAYED)}. Received network={fields.network}; "
            "leave it out."
        )
    if fields.frozen and not fields.weights:
        raise ValueError(
            "frozen=true keeps the body's weights, so give weights=imagenet or a file too."
        )
    check_choice("nested", fields.nested, NESTED)
    if len(fields.columns) not in (0, 2) or len(set(fields.columns)) != len(fields.columns):
        raise ValueError(
            "Field columns takes two names: the path's column and the label's. Received "
            f"columns={','.join(fields.columns)}."
        )
    if fields.part not in ("", *PARTS):
        raise ValueError(f"Field part must be validation, test or train. Received {fields.part!r}.")


def make_model(fields: Fields, data: Data) -> keras.Model:
    """Returns the network, with the preparation of the pixels inside."""
    import keras

    from towers.models import applications

    shape, num_classes = (fields.size, fields.size, CHANNELS), data.test.source.num_classes
    if fields.network in OURS:
        body = make_ours(fields, shape, num_classes)
        images = keras.Input(shape, name="images")
        prepared = keras.layers.Rescaling(1 / 127.5, offset=-1.0, name="prepared")(images)
        if fields.standardize:
            prepared = standardized(prepared)
        return keras.Model(images, body(prepared), name=fields.network)
    # What was trained has no key: its weights come from a checkpoint.
    weights = fields.weights if data.key and fields.weights else None
    own = common.arguments_for(applications.application, fields, weights=weights)
    return applications.application(fields.network, shape, num_classes, **own)


def standardized(images: keras.KerasTensor) -> keras.KerasTensor:
    """Returns images [batch, height, width, channels], each with mean 0 and variance 1.

    A picture of one colour becomes 0: 1e-4 is added to the variance, of pixels from -1 to 1.
    """
    import keras

    layer = keras.layers.LayerNormalization(
        axis=(1, 2, 3), epsilon=1e-4, center=False, scale=False, name="standardized"
    )
    return layer(images)


def make_ours(fields: Fields, shape: tuple[int, int, int], num_classes: int) -> keras.Model:
    """Returns the network of this project that the field names, one of `OURS`."""
    from towers.models import cnn, fast_cnn, mlp, resnet

    makers: dict[str, tuple[Any, dict[str, Any]]] = {
        "cifar_resnet": (resnet.cifar_resnet, {"depth": fields.depth, "shortcut": "projection"}),
        "cifar_cnn": (cnn.cifar_cnn, {}),
        "fast": (fast_cnn.fast_cnn, {"widths": fields.widths}),
        "lenet": (cnn.lenet, {}),
        "mlp": (mlp.mlp, {}),
        "softmax": (mlp.softmax_regression, {}),
    }
    make, own = makers[fields.network]
    if fields.network in DECAYED and fields.weight_decay != USUAL:
        own["weight_decay"] = fields.weight_decay
    return make(shape, num_classes, **own)


def initialize(fields: Fields, model: keras.Model, data: Data) -> None:
    """Lets the first layer of fast whiten the training images, unless there are none."""
    import keras

    from towers.models.fast_cnn import whiten

    if fields.network != "fast" or not data.train.num_examples:
        return
    prepared = keras.Model(model.input, model.layers[-2].output)
    layer = model.get_layer("fast").get_layer("whitening")
    whiten(layer, (prepared(images) for images, _ in data.train(0)))


def make_tower_fn(fields: Fields, model: keras.Model, training: bool) -> Any:
    """Returns the tower function."""
    from towers.models import losses, views

    smoothing = fields.label_smoothing if training else 0.0
    if fields.multi_label:
        make = losses.several_labels
    elif training and fields.mixup:
        make = losses.soft_classification
    else:
        make = losses.classification
    network = model if training else views.over_views(model, fields.test_views)
    return make(network, training=training, label_smoothing=smoothing)


def prepare(
    fields: Fields,
    folder: Path | None,
    processes: int | None = None,
    write: Callable[[str], None] = show,
) -> Prepared:
    """Writes the pictures into record files, from which a slow disk reads faster."""
    from towers.data.image_files.preparation import prepare_records

    image_files = open_files(fields, folder, threads=processes)
    own = common.arguments_for(prepare_records, fields)
    return prepare_records(image_files, CACHE, **own, threads=processes, write=write)


RECIPE = Recipe(
    name="images",
    fields=Fields(batch_size=64, schedule="cosine", warmup_steps=100),
    make_data=make_data,
    make_model=make_model,
    initialize=initialize,
    make_tower_fn=make_tower_fn,
    prepare=prepare,
)
