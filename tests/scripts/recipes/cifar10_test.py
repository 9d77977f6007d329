"""CIFAR-10's recipes: the data that is not there, whitened training images, runs from before."""

import dataclasses
import gzip

import numpy as np
import pytest
import tensorflow as tf

from tests.small_data import write_idx
from towers.data.samples import shapes
from towers.scripts.main import main
from towers.scripts.recipes import cifar10, cifar10_tutorial, fashion_mnist_fast


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The embedded shapes in the published layout, 40 of each file."""
    folder = tmp_path_factory.mktemp("cifar10")
    for path in shapes.folder().glob("*.gz"):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes())[: 3073 * 40])
    return folder


def test_without_data_one_line_names_the_download(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cifar10"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "towers download cifar10" in line


def test_the_first_layer_whitens_what_the_network_sees(folder):
    fields = dataclasses.replace(cifar10.RECIPE.fields, batch_size=20)
    data = cifar10.make_data(fields, folder, 0)
    model = cifar10.make_model(fields, data)
    cifar10.initialize(fields, model, data)
    images = tf.concat([images for images, _ in data.train(0)], 0)
    outputs = np.reshape(model.get_layer("whitening")(images), [-1, 24])[:, :12]
    moments = outputs.T @ outputs / len(outputs)
    assert np.abs(moments - np.diag(np.diag(moments))).max() < 1e-3
    assert 0.5 < np.diag(moments).min() <= np.diag(moments).max() < 1 + 1e-3


def test_the_fast_network_takes_the_images_of_fashion_mnist(tmp_path):
    write_idx(tmp_path / "idx")
    recipe = fashion_mnist_fast.RECIPE
    data = recipe.make_data(recipe.fields, tmp_path / "idx", 0)
    model = recipe.make_model(recipe.fields, data)
    assert model.input_shape == (None, 28, 28, 1)
    assert model.get_layer("block3_conv2").filters == 128
    recipe.initialize(recipe.fields, model, data)
    ((images, labels),) = data.train(0)
    assert images.shape == (60, 28, 28, 1) and labels.shape == (60,)
    assert model(images).shape == (60, 10)


def test_the_tutorial_sees_its_crops(folder):
    fields = cifar10_tutorial.RECIPE.fields
    data = cifar10.make_data(fields, folder, 0)
    assert cifar10.make_model(fields, data).input_shape == (None, 24, 24, 3)
    ((images, _),) = data.train(0)
    assert images.shape[1:] == (24, 24, 3)
