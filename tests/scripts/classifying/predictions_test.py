"""Predictions of files are those of the network on their pixels."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from tests.scripts.runs import train_shapes
from towers.data.images import cifar10
from towers.data.samples import shapes
from towers.scripts.classifying.predictions import (
    classify_images,
    find_images,
    pixels_of,
    read_picture,
)
from towers.scripts.main import main
from towers.scripts.training.options import DeviceOptions, EvaluateOptions
from towers.scripts.training.saved_run import open_evaluation

IMAGES = cifar10.load(shapes.folder(), "test")


@pytest.fixture
def folder(tmp_path):
    """A folder with three test images, one of them in a folder of its own."""
    (tmp_path / "images" / "more").mkdir(parents=True)
    for number, name in enumerate(("a.png", "b.PNG", "more/c.png")):
        content = tf.io.encode_png(IMAGES.images[number]).numpy()
        (tmp_path / "images" / name).write_bytes(content)
    (tmp_path / "images" / "notes.txt").write_text("none")
    return tmp_path / "images"


def test_files_are_predicted_as_their_pixels_are_and_others_are_named(folder, tmp_path, capsys):
    run = str(tmp_path / "run")
    assert main([*train_shapes(run, "--steps", "2"), "--quiet"]) == 0
    assert main(["predict", run, str(folder), "--json", "--top", "2"]) == 0
    *lines, last = capsys.readouterr().out.splitlines()
    predictions = json.loads(last)["predictions"]
    check_predictions(run, lines, predictions)
    broken = folder / "broken.png"
    broken.write_bytes((folder / "a.png").read_bytes()[:100])
    absent = folder / "absent.png"
    assert main(["predict", run, str(absent), str(folder), "--json", "--top", "2"]) == 2
    printed = capsys.readouterr()
    last = json.loads(printed.out.splitlines()[-1])
    assert last["predictions"] == predictions
    assert list(last["refused"]) == [str(absent), str(broken)]
    assert f"{broken} cannot be predicted" in printed.err
    assert "2 of 5 files cannot be predicted" in printed.err


def check_predictions(run, lines, predictions):
    """Compares what was said of the three images with the network on their pixels."""
    assert len(lines) == len(predictions) == 3
    session, _ = open_evaluation(EvaluateOptions(run, devices=DeviceOptions(towers=1)))
    expected = classify_images(session)(IMAGES.images[:3])["probabilities"].numpy()
    for (path, found), probabilities in zip(predictions.items(), expected, strict=True):
        best = np.argsort(-probabilities)[:2]
        assert list(found) == [IMAGES.class_names[number] for number in best], path
        np.testing.assert_allclose(list(found.values()), probabilities[best], rtol=1e-5)


def read_image(path, shape):
    return pixels_of(read_picture(path), shape)


def test_images_of_another_size_or_colour_are_fitted(folder):
    assert read_image(folder / "a.png", (32, 32, 3)).numpy().tolist() == IMAGES.images[0].tolist()
    small = read_image(folder / "a.png", (16, 16, 1))
    assert small.shape == (16, 16, 1) and small.dtype == tf.uint8
    grey = read_image(folder / "a.png", (32, 32, 1)).numpy().astype(float)
    blocks = grey.reshape(16, 2, 16, 2).mean((1, 3))
    np.testing.assert_allclose(small.numpy()[..., 0], blocks, atol=0.5)


def test_what_is_no_image_is_refused_by_name(folder, tmp_path):
    assert [path.name for path in find_images([str(folder)])] == ["a.png", "b.PNG", "c.png"]
    (tmp_path / "empty").mkdir()
    for path, error in ((tmp_path / "absent", OSError), (tmp_path / "empty", ValueError)):
        assert find_images([str(path)]) == [path]  # Others are predicted.
        with pytest.raises(error, match=path.name):
            read_image(path, (32, 32, 3))
    with pytest.raises(ValueError, match=r"notes\.txt cannot be predicted: .* Expected one of"):
        read_image(folder / "notes.txt", (32, 32, 3))
    os.mkfifo(folder / "pipe.png")
    with pytest.raises(OSError, match=r"a pipe or a device, no file.*pipe\.png"):
        read_image(folder / "pipe.png", (32, 32, 3))


@pytest.mark.parametrize("options", [{"format": "BMP"}, {"format": "GIF"}, {"format": "WEBP"}])
def test_any_kind_of_picture_becomes_grey(tmp_path, options):
    pixels = np.full((8, 8, 3), [200, 100, 40], np.uint8)
    Image.fromarray(pixels).save(tmp_path / "picture", **options)
    grey = read_image(tmp_path / "picture", (8, 8, 1)).numpy()
    np.testing.assert_allclose(grey, 0.299 * 200 + 0.587 * 100 + 0.114 * 40, atol=3)


def test_a_picture_has_the_colours_of_its_palette(tmp_path):
    picture = Image.fromarray(np.full((8, 8, 3), [204, 102, 51], np.uint8)).convert("P")
    picture.save(tmp_path / "picture.bmp")
    assert read_image(tmp_path / "picture.bmp", (8, 8, 3)).numpy()[0, 0].tolist() == [204, 102, 51]


@pytest.mark.slow
def test_a_recipe_that_reads_files_gets_them_as_they_are(tmp_path, capsys):
    for number in range(60):
        name = IMAGES.class_names[IMAGES.labels[number] % 2]
        path = tmp_path / "data" / name / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(IMAGES.images[number]).numpy())
    run, data = str(tmp_path / "run"), str(tmp_path / "data")
    small = ["--set", "network=softmax", "--set", "size=8", "--set", "batch_size=20", "--quiet"]
    assert main(["train", "images", "--data", data, "--steps", "2", "--run-dir", run, *small]) == 0
    assert main(["predict", run, data, "--json", "--top", "2"]) == 0
    predictions = json.loads(capsys.readouterr().out.splitlines()[-1])["predictions"]
    assert len(predictions) == 60
    for shares in predictions.values():
        assert set(shares) == set(IMAGES.class_names[:2])
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
    assert main(["evaluate", run, "--classes"]) == 0
    assert "rows: true classes" in capsys.readouterr().out
