"""The recipe for picture files: exact on any number of towers, resumed, evaluated and exported."""

import json
import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.data.image_files.pictures import CLASSES, PLAIN_KINDS, write_pictures
from tests.paths import ROOT
from tests.programs import TOWERS, run
from tests.scripts.runs import arrays_of, killed_twice, weights_of
from towers.data.image_files.image_files import open_image_files
from towers.scripts.main import main
from towers.scripts.recipes.images import standardized

COMMON = ["--set", "schedule=constant", "--set", "warmup_steps=0", "--set", "validation_share=0.3"]
SMALL = ["--batch-size", "9", "--set", "network=softmax", "--set", "size=16", *COMMON]


PEAK = "print('peak', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"  # In kB.
MEASURED = f"""
import resource, sys
from towers.scripts.main import main
code = main(sys.argv[1:])
{PEAK}
sys.exit(code)
"""
TENSORFLOW_ALONE = f"""
import resource, keras, tensorflow
tensorflow.function(lambda x: x + 1)(1)
{PEAK}
"""


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    """Makes a folder of pictures in the working folder."""
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "my pictures")


@pytest.fixture
def plain_pictures(tmp_path, monkeypatch):
    """As above, of the kinds that are traced fast."""
    monkeypatch.chdir(tmp_path)
    write_pictures(tmp_path / "my pictures", kinds=PLAIN_KINDS)


def arguments_of(run_dir, *options, fields=SMALL, data="my pictures"):
    arguments = ["train", "images", "--data", data, "--run-dir", run_dir]
    return [*arguments, *fields, *map(str, options)]


def train(run_dir, *options, data="my pictures"):
    assert main(arguments_of(run_dir, *options, data=data)) == 0


def last_object(capsys):
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_a_resumed_run_is_the_uninterrupted_one_and_its_export_classifies_files(tmp_path, capsys):
    """The first part of it reads the files, the second the records made of them."""
    options = ["--towers", 2, "--set", "augmentation=colour", "--set", "mixup=0.2"]
    train("whole", *options, "--steps", 5)
    train("parts", *options, "--steps", 3)
    assert main(["prepare", "images", "--data", "my pictures", *SMALL[2:]]) == 0
    folder = capsys.readouterr().out.splitlines()[-1].removeprefix("prepared in ")
    train("parts", *options, "--steps", 5, data=folder)
    assert "continues at step 3" in capsys.readouterr().out
    parts, whole = (weights_of(tmp_path / name) for name in ("parts", "whole"))
    for left, right in zip(parts, whole, strict=True):
        np.testing.assert_array_equal(left, right)
    assert main(["evaluate", "parts", "--json", "--checkpoint", "latest"]) == 0
    report = last_object(capsys)
    assert main(["export", "parts", "--output", "exported", "--checkpoint", "latest"]) == 0
    check_export(tmp_path, report)


FAST = ["--batch-size", "8", "--set", "network=fast", "--set", "widths=2,3,4", "--set", "size=16"]
FAST += ["--set", "augmentation=shift", "--set", "flip=alternating", "--set", "test_views=shifts"]
FAST += ["--set", "optimizer=nesterov", "--set", "learning_rate=0.1", *COMMON]


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_fast_has_the_same_bits_on_towers_and_resumed_and_its_views_are_exported(tmp_path, capsys):
    for name, towers, micro_batches, ends in (("one", 1, 2, [5]), ("resumed", 2, 1, [3, 5])):
        for end in ends:
            options = ["--deterministic", "--towers", towers, "--accumulate", micro_batches]
            assert main(arguments_of(name, *options, "--steps", end, fields=FAST)) == 0
    one, resumed = (arrays_of(tmp_path / name) for name in ("one", "resumed"))
    assert one[0] == resumed[0] == 5 and one[1].keys() == resumed[1].keys()
    for name, expected in one[1].items():
        np.testing.assert_array_equal(resumed[1][name], expected, err_msg=name)
    capsys.readouterr()
    assert main(["evaluate", "one", "--json", "--checkpoint", "latest"]) == 0
    report = last_object(capsys)
    assert main(["export", "one", "--output", "exported", "--checkpoint", "latest"]) == 0
    check_export(tmp_path, report)


def check_export(folder, report):
    """The exported network has the accuracy of the evaluation, from the files themselves."""
    settings = json.loads((folder / "exported" / "settings.json").read_text())
    assert settings["classes"] == sorted(CLASSES)
    exported = tf.saved_model.load(str(folder / "exported" / "model"))
    pictures = sorted((folder / "my pictures").glob("*/*[0-9].*"))
    classes = exported.classify(tf.constant([path.read_bytes() for path in pictures]))[
        "classes"
    ].numpy()
    hits = {
        str(path.relative_to(folder / "my pictures")): sorted(CLASSES)[found] == path.parent.name
        for path, found in zip(pictures, classes, strict=True)
    }
    held_out = open_image_files(
        folder / "my pictures", folder / "datasets" / "prepared", validation_share=0.3
    ).parts["validation"]
    assert len(held_out) == report["examples"]
    accuracy = np.mean([hits[name] for name in held_out.names])
    assert report["accuracy"] == pytest.approx(accuracy, abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
@pytest.mark.parametrize(
    "numbers, multi_label",
    [((1, 3), "false"), ((1, 2, 3), "true")],
)
def test_any_number_of_towers_ends_with_the_same_weights(numbers, multi_label, tmp_path):
    options = ["--precision", "float64", "--steps", 4, "--set", f"multi_label={multi_label}"]
    for towers in numbers:
        train(f"on_{towers}", *options, "--towers", towers)
    expected, *others = (weights_of(tmp_path / f"on_{towers}") for towers in numbers)
    largest = max(np.abs(array).max() for array in expected)
    for actual in others:
        for left, right in zip(actual, expected, strict=True):
            assert np.abs(left - right).max() <= 1e-12 * largest


@pytest.mark.usefixtures("plain_pictures")
def test_wrong_input_is_named_with_the_remedy(tmp_path, capsys):
    write_pictures(tmp_path / "others", classes=["blue", "绿色"], kinds=PLAIN_KINDS)
    shutil.copytree(tmp_path / "others", tmp_path / "fewer")
    (tmp_path / "others" / "绿色").rename(tmp_path / "others" / "yellow")
    train("run", "--steps", 1)
    capsys.readouterr()
    for arguments, message in [
        (["train", "images"], "give --data FOLDER"),
        (arguments_of("x", "--set", "network=ResNet51", fields=COMMON), "Did you mean 'ResNet50'?"),
        (arguments_of("x", "--set", "augmentation=flipped"), "Did you mean flip?"),
        (arguments_of("x", "--set", "weights=file.h5"), "leave them out"),
        (
            arguments_of("x", "--set", "network=VGG16", "--set", "standardize=true", fields=COMMON),
            "Leave out standardize, or choose one of cifar_resnet",
        ),
        (arguments_of("x", "--set", "weight_decay=0.1"), "weight_decay is for cifar_"),
        (
            arguments_of(
                "x", "--set", "network=cifar_cnn", "--set", "weight_decay=-2", fields=COMMON
            ),
            "weight_decay must not be negative",
        ),
        (arguments_of("x", "--set", "part=validate"), "part must be validation"),
        (arguments_of("x", "--set", "max_broken=3"), "max_broken=N"),
        (arguments_of("x", "--set", "part=test"), "has no test part. It has: train, validation"),
        (["evaluate", "run", "--data", "others"], "these differ: ['red things', 'yellow', '绿色']"),
        (["evaluate", "run", "--data", "nowhere"], "no data to evaluate on in nowhere. Give"),
    ]:
        assert main(arguments) == 2, arguments
        assert message in capsys.readouterr().err
    assert main(["evaluate", "run", "--data", "fewer"]) == 0
    with pytest.warns(RuntimeWarning, match="prepared or split, is no longer what the run"):
        assert main(["evaluate", "run", "--set", "validation_share=0.5"]) == 0
    assert main(["predict", "run", "fewer/blue/a b 0.jpg"]) == 0
    (tmp_path / "my pictures").rename(tmp_path / "moved")  # What was trained, it says without them.
    assert main(["predict", "run", "fewer/blue/a b 0.jpg"]) == 0


def test_a_standardized_picture_has_mean_0_and_variance_1():
    pixels = np.random.default_rng(0).uniform(0, 255, [3, 9, 7, 3]).astype(np.float32)
    pixels[1] = 0.2 * pixels[0] + 100.0  # The same picture in other light, with less contrast.
    images = keras.Input(pixels.shape[1:])
    prepared = keras.layers.Rescaling(1 / 127.5, offset=-1.0)(images)
    actual = keras.Model(images, standardized(prepared))(pixels).numpy()
    expected = tf.image.per_image_standardization(pixels).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=2e-2)
    np.testing.assert_allclose(actual[0], actual[1], rtol=0, atol=2e-2)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_the_input_report_measures_what_the_towers_wait_for(capsys):
    command = ["benchmark", "images", "--data", "my pictures", "--input", "--steps", "4", *SMALL]
    assert main([*command, "--towers", "2", "--json"]) == 0
    results = last_object(capsys)["results"]
    assert 0 <= results["input_wait"] <= 1
    assert min(results["examples_per_second"], results["cpu_milliseconds"]) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_a_run_killed_twice_ends_bit_identical(tmp_path):
    """BatchNorm, random crops and colours on two towers, in bounded memory."""
    options = ["--towers", 2, "--deterministic", "--steps", 24, "--checkpoint-every", 3]
    options += ["--set", "network=cifar_resnet", "--set", "depth=8", "--report-every", 1]
    options += ["--set", "augmentation=randaugment", "--batch-size", 9, "--set", "size=16"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run([*TOWERS, *arguments_of("whole", *options, fields=COMMON)], env=environment)
    command = [sys.executable, "-c", MEASURED, *arguments_of("killed", *options, fields=COMMON)]
    output = killed_twice(command, env=environment)
    assert "continues at step" in output
    alone = run([sys.executable, "-c", TENSORFLOW_ALONE], env=environment)
    peak, least = (int(text.rpartition("peak ")[2]) for text in (output, alone))
    assert peak < least + 600_000, (peak, least)
    (step, whole), (same, killed) = (arrays_of(tmp_path / name) for name in ("whole", "killed"))
    assert step == same == 24 and whole.keys() == killed.keys()
    for name, array in whole.items():
        np.testing.assert_array_equal(killed[name], array, err_msg=name)


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_a_network_of_keras_trains(tmp_path, capsys):
    options = ["--set", "network=ResNet50", "--set", "size=64", "--steps", 2, "--towers", 2]
    assert main(arguments_of("run", *options, "--batch-size", 9, fields=COMMON)) == 0
    assert "step 2 saved" in capsys.readouterr().out
    assert all(np.isfinite(array).all() for array in weights_of(tmp_path / "run"))


# Writes what Keras would download for MobileNet without its top into its cache, by Keras's layout.
PUBLISH = """
import os, sys
import h5py, keras
keras.utils.set_random_seed(5)
body = keras.applications.MobileNet(include_top=False, weights=None, input_shape=(64, 64, 3))
folder = os.path.join(os.environ["KERAS_HOME"], "models")
os.makedirs(folder, exist_ok=True)
names = [layer.name for layer in body.layers]
with h5py.File(os.path.join(folder, "mobilenet_1_0_224_tf_no_top.h5"), "w") as file:
    file.attrs["layer_names"] = [name.encode() for name in names]
    for layer in body.layers:
        group = file.create_group(layer.name)
        group.attrs["weight_names"] = [one.path.encode() for one in layer.weights]
        for one in layer.weights:
            group[one.path] = one.numpy()
print(float(abs(body.trainable_variables[0].numpy()).sum()))
"""
PRETRAINED = ["--set", "network=MobileNet", "--set", "weights=imagenet", "--set", "frozen=true"]
PRETRAINED += ["--set", "size=64", "--batch-size", "9", *COMMON]


@pytest.mark.slow
@pytest.mark.usefixtures("pictures")
def test_published_weights_come_from_kerass_cache_and_only_training_needs_them(tmp_path):
    home = tmp_path / "keras"
    proxies = dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9")  # Offline.
    offline = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_HOME": str(home), **proxies}
    train = [*TOWERS, *arguments_of("run", "--steps", 1, "--towers", 2, fields=PRETRAINED)]
    home.mkdir()
    failed = subprocess.run(train, env=offline, capture_output=True, text=True, check=False)
    assert failed.returncode == 2 and "Traceback" not in failed.stderr
    last = failed.stderr.strip().splitlines()[-1]
    assert "mobilenet_1_0_224_tf_no_top.h5" in last and "$KERAS_HOME/models, yourself" in last
    size = float(run([sys.executable, "-c", PUBLISH], env=offline).splitlines()[-1])
    run(train, env=offline)
    kernel = next(one for one in weights_of(tmp_path / "run") if one.shape == (3, 3, 3, 32))
    assert abs(kernel).sum() == pytest.approx(size, rel=1e-6)
    shutil.rmtree(home)
    output = run([*TOWERS, "evaluate", "run", "--json"], env=offline)
    run([*TOWERS, "export", "run", "--output", "exported"], env=offline)
    check_export(tmp_path, json.loads(output.splitlines()[-1]))
