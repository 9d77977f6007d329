"""A checkpoint file comes back bit for bit, or is refused; a failed save leaves nothing behind."""

import json
import os
import resource
import threading
import zipfile

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.programs import exit_code
from tests.towers.saving.saved_groups import write_checkpoint
from towers.saving.checkpoint_files import DamagedCheckpointError, read_checkpoint

DTYPES = ["bool", "int8", "uint8", "int32", "int64", "uint32", "uint64", "float16", "float32"]
DTYPES += ["float64", "complex64", "bfloat16", "float8_e4m3fn", "float8_e5m2"]


def some_groups():
    """Two groups of three variables with all kinds of ranks."""
    random = np.random.default_rng(5)
    return {
        "variables": [
            keras.Variable(random.normal(size=(4, 3)), name="kernel"),
            keras.Variable(random.normal(size=(5,)), dtype="bfloat16", name="half"),
        ],
        "optimizer": [tf.Variable(7, dtype=tf.int64, name="iteration")],
    }


def arrays_of(checkpoint):
    return [array for saved in checkpoint.groups.values() for _, array in saved]


def assert_same_bits(actual, expected):
    assert [(a.dtype, a.shape, a.tobytes()) for a in actual] == [
        (np.asarray(e).dtype, e.shape, np.asarray(e).tobytes()) for e in expected
    ]


def read_or_none(path):
    """The checkpoint, or None where it is refused."""
    try:
        return read_checkpoint(path)
    except DamagedCheckpointError:
        return None


@pytest.mark.parametrize("shape", [(), (0, 3), (17, 3)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype, shape):
    kind = tf.as_dtype(dtype).as_numpy_dtype
    bits = np.random.default_rng(3).integers(0, 256, (*shape, np.dtype(kind).itemsize), np.uint8)
    bits = bits % 2 if dtype == "bool" else bits  # NaNs of any payload are among the others.
    value = np.frombuffer(bits.tobytes(), kind).reshape(shape)
    variable = tf.Variable(value)

    write_checkpoint(tmp_path / "one", 1, {"group": [variable]}, {})

    [array] = arrays_of(read_checkpoint(tmp_path / "one"))
    assert_same_bits([array], [value])


def test_keras_variables_paths_step_and_state_come_back(tmp_path):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="logits")])
    seeds = keras.random.SeedGenerator(9)
    state = {"epoch": 2, "best": {"value": None, "loss": 0.1}, "seed": 2**62, "name": "Zoë"}

    groups = {"variables": model.variables, "seeds": [seeds.state], "empty": []}
    write_checkpoint(tmp_path / "one", np.int64(12), groups, state)

    checkpoint = read_checkpoint(tmp_path / "one")
    assert (checkpoint.path, checkpoint.step, checkpoint.state) == (tmp_path / "one", 12, state)
    assert list(checkpoint.groups) == ["variables", "seeds", "empty"]
    assert [path for path, _ in checkpoint.groups["variables"]] == [
        variable.path for variable in model.variables
    ]
    expected = [variable.numpy() for variable in [*model.variables, seeds.state]]
    assert_same_bits(arrays_of(checkpoint), expected)


def test_numpy_alone_reads_the_file(tmp_path):
    groups = some_groups()
    write_checkpoint(tmp_path / "one.npz", 1, groups, {})
    with np.load(tmp_path / "one.npz", allow_pickle=False) as archive:
        np.testing.assert_array_equal(archive["variables/0"], groups["variables"][0].numpy())
        half = archive["variables/1"].view(ml_dtypes.bfloat16)
        np.testing.assert_array_equal(half, groups["variables"][1].numpy())
        assert json.loads(archive["manifest"].tobytes())["step"] == 1


def test_equal_values_make_equal_files(tmp_path):
    groups = some_groups()
    for name in ("one", "two"):
        write_checkpoint(tmp_path / name, 1, groups, {"epoch": 1})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_every_truncation_is_refused(tmp_path):
    path = tmp_path / "one"
    write_checkpoint(path, 1, some_groups(), {})
    content = path.read_bytes()
    for length in {*range(0, len(content), 11), *range(len(content) - 60, len(content))}:
        path.write_bytes(content[:length])
        with pytest.raises(DamagedCheckpointError, match="one is not a whole checkpoint"):
            read_checkpoint(path)


def test_flipped_bits_are_detected_or_harmless(tmp_path):
    path = tmp_path / "one"
    write_checkpoint(path, 1, some_groups(), {"epoch": 3})
    content = path.read_bytes()
    expected = arrays_of(read_checkpoint(path))
    random = np.random.default_rng(11)
    directory = content.index(b"PK\x01\x02")
    positions = [*random.integers(0, len(content), 300), *range(directory, len(content))]
    refused = 0
    for position in positions:
        damaged = bytearray(content)
        damaged[position] ^= 1 << random.integers(8)
        path.write_bytes(damaged)
        checkpoint = read_or_none(path)
        if checkpoint is None:
            refused += 1
        else:
            assert (checkpoint.step, checkpoint.state) == (1, {"epoch": 3})
            assert_same_bits(arrays_of(checkpoint), expected)
    assert refused > len(positions) // 3


def test_every_flipped_bit_of_the_values_is_detected(tmp_path):
    path = tmp_path / "one"
    variable = tf.Variable(np.random.default_rng(2).normal(size=4))
    write_checkpoint(path, 1, {"variables": [variable]}, {})
    content = path.read_bytes()
    start = content.index(variable.numpy().tobytes())
    for position in range(8 * start, 8 * (start + 32)):
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(damaged)
        with pytest.raises(DamagedCheckpointError, match="CRC-32"):
            read_checkpoint(path)


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "foreign.npz"
    path.write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match=r"foreign\.npz"):
        read_checkpoint(path)
    path.write_text("a text of some length " * 100)
    with pytest.raises(DamagedCheckpointError, match="not a zip file"):
        read_checkpoint(path)
    np.savez(path, weights=np.ones(3))
    with pytest.raises(DamagedCheckpointError, match="holds no manifest"):
        read_checkpoint(path)
    for manifest in ("[]", "{}", "nonsense", '{"format": "other", "version": 9}'):
        np.savez(path, manifest=np.frombuffer(manifest.encode(), np.uint8))
        with pytest.raises(DamagedCheckpointError, match="not a whole checkpoint"):
            read_checkpoint(path)


def test_an_object_array_is_refused(tmp_path):
    path = tmp_path / "pickled.npz"
    np.savez(path, manifest=np.array([{"step": 1}], dtype=object))
    with pytest.raises(DamagedCheckpointError, match="holds Python objects"):
        read_checkpoint(path)


def test_an_array_unlike_the_manifest_is_refused(tmp_path):
    path = tmp_path / "one"
    write_checkpoint(path, 1, {"variables": [tf.Variable(tf.ones([4]), name="bias")]}, {})
    with zipfile.ZipFile(path) as archive:
        manifest = archive.read("manifest.npy")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.npy", manifest)
        with archive.open("variables/0.npy", "w") as member:
            np.save(member, np.ones(5, np.float32))
    with pytest.raises(DamagedCheckpointError, match=r"bias is float32 \[4\].*float32 \[5\]"):
        read_checkpoint(path)


def test_a_missing_file_is_not_called_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "none")


def test_a_full_disk_keeps_what_was_saved(small_disk):
    variable = tf.Variable(tf.zeros([50_000]))
    write_checkpoint(small_disk / "one", 1, {"variables": [variable]}, {})
    before = (small_disk / "one").read_bytes()

    large = {"variables": [tf.Variable(tf.ones([300_000]))]}
    for name in ("one", "two"):
        with pytest.raises(
            OSError, match=rf"{name}: No space left on device\. Earlier checkpoints"
        ):
            write_checkpoint(small_disk / name, 2, large, {})

    assert os.listdir(small_disk) == ["one"]
    assert (small_disk / "one").read_bytes() == before


def test_a_size_limit_keeps_what_was_saved(tmp_path):
    write_checkpoint(tmp_path / "one", 1, some_groups(), {})
    before = (tmp_path / "one").read_bytes()
    (tmp_path / "message").touch()
    assert exit_code(save_under_a_limit, tmp_path / "one", tmp_path / "message") == 0
    assert (tmp_path / "message").read_text() == (
        f"Cannot save the checkpoint {tmp_path / 'one'}: File too large. "
        "Earlier checkpoints are untouched."
    )
    assert sorted(os.listdir(tmp_path)) == ["message", "one"]
    assert (tmp_path / "one").read_bytes() == before


def save_under_a_limit(path, message):
    """Tries to save 400 kilobytes where a file may have 100, and writes down the error."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        write_checkpoint(path, 2, {"variables": [tf.Variable(tf.ones([100_000]))]}, {})
    except OSError as error:
        message.write_text(str(error))


def test_state_that_json_cannot_hold_leaves_nothing_behind(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_checkpoint(tmp_path / "one", 1, some_groups(), {"epoch": object()})
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("value", ["a text", ["two", "texts"]])
def test_text_variables_are_refused(tmp_path, value):
    with pytest.raises(ValueError, match="Received the variable 'note' of dtype string"):
        write_checkpoint(tmp_path / "one", 1, {"texts": [tf.Variable(value, name="note")]}, {})
    assert os.listdir(tmp_path) == []


def test_headers_are_parsed_by_one_thread(tmp_path, monkeypatch):
    """Python 3.11 raises SystemError where two threads parse Python at once, as NumPy does."""
    groups = {"group": [tf.Variable(tf.range(number + 1)) for number in range(8)]}
    write_checkpoint(tmp_path / "saved", 1, groups, {})
    parse, threads = np.lib.format.read_array_header_1_0, []

    def noted(header):
        threads.append(threading.current_thread())
        return parse(header)

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", noted)
    read_checkpoint(tmp_path / "saved")
    assert threads == [threading.current_thread()] * 9


def test_many_arrays_are_read_whole_each_time(tmp_path):
    """Python 3.13.0 takes a sound file for damaged where threads open its members."""
    groups = {"group": [tf.Variable(tf.fill([50], float(number))) for number in range(60)]}
    write_checkpoint(tmp_path / "saved", 1, groups, {})
    for _ in range(40):
        arrays = read_checkpoint(tmp_path / "saved").groups["group"]
        assert [one.array[0] for one in arrays] == list(range(60))
