"""Every test sees five logical CPUs: one for the parameters and one for each of four towers."""

import functools
import gc
import os
import pathlib
import subprocess
import sys
import traceback

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import hypothesis
import pytest

import towers  # noqa: F401  It chooses oneDNN's kernels, before anything imports TensorFlow.

NUM_LOGICAL_CPUS = 5
ROOT = pathlib.Path(__file__).parent
# The fast tier: all tests of these files and folders but the slow ones, and those marked `fast`.
FAST = (
    "architecture_test.py",
    "data/batches/buckets_test.py",
    "data/reading/conv_test.py",
    "data/reading/cornell_test.py",
    "data/reading/json_lines_test.py",
    "data/reading/speakers_test.py",
    "data/reading/tsv_test.py",
    "data/fetching",
    "data/images/cifar10_test.py",
    "data/images/idx_test.py",
    "data/text/normalisation_test.py",
    "data/text/vocabulary_test.py",
    "data/text/words_test.py",
    "laws/random_test.py",
    "models/attention_test.py",
    "models/cnn_test.py",
    "models/linear_cross_entropy_test.py",
    "models/losses_test.py",
    "models/mlp_test.py",
    "towers/batches/feed_test.py",
    "towers/ground/random_numbers_test.py",
    "towers/loop/rates_test.py",
    "towers/loop/trainer_test.py",
    "towers/optimizers",
    "towers/saving/checkpoint_files_test.py",
    "towers/travel/gradients_test.py",
    "scripts/serving/batching_test.py",
    "scripts/serving/chat_request_test.py",
    "scripts/wrong_input_test.py",
)


# Files whose processes come from the fork server, which each process of the tests starts anew.
FORKING = (
    "benchmarks/fit_test.py",
    "scripts/training/run_directory_test.py",
    "systems_test.py",
    "towers/compiled/together_test.py",
    "towers/devices/selection_test.py",
    "towers/ground/durable_test.py",
    "towers/loop/stopping_test.py",
    "towers/processes/processes_test.py",
    "towers/saving/checkpoint_files_test.py",
    "towers/saving/checkpoint_folder_test.py",
    "towers/saving/summaries_test.py",
)
# Files and folders that take long: processes end together if they begin with these.
LONG = (
    *FORKING,
    "benchmarks",
    "documents_test.py",
    "faults_test.py",
    "gpu",
    "laws",
    "peers_test.py",
    "scripts/chatbot",
    "scripts/chatbot_test.py",
    "scripts/commands",
    "scripts/commands_test.py",
    "scripts/exporting",
    "scripts/recipes",
    "scripts/resume_test.py",
    "scripts/tensorboard_test.py",
    "scripts/training",
    "towers/compiled",
    "towers/loop",
    "towers/other_steps",
    "towers/step",
    "towers/variables/copies_test.py",
)

# Folders whose laws are not about a graph's numbers: their default tests run graphs as they were
# traced. TensorFlow's optimizer of graphs would take a fifth of their time; it runs in all others,
# in the slow ones and in every process of its own.
AS_TRACED = ("towers/compiled", "towers/loop")
ALL_SIZES, NO_SIZE = 4, 2**31 - 1  # Nodes that a graph has at least which TensorFlow optimizes.

# No test depends on how fast a machine is.
hypothesis.settings.register_profile(
    "patient",
    deadline=None,
    max_examples=40,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("patient")


def pytest_configure(config) -> None:
    gc.set_threshold(50_000)  # Graphs are made of very many objects, which all stay for a while.
    hands_out_tests = config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput")
    if not hands_out_tests:
        make_logical_cpus()


def make_logical_cpus() -> None:
    """Makes the devices of this process; not in the one that hands out tests to others."""
    import tensorflow as tf

    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * NUM_LOGICAL_CPUS
    )


def pytest_collection_modifyitems(items) -> None:
    """Marks the slow cases, the fast tier, which has none, and what root runs; long files first."""
    thorough = cases_of("thorough_cases.txt")
    slow = thorough | cases_of("slow_cases.txt")
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        if name in slow:
            item.add_marker(pytest.mark.slow)
        if name in thorough:
            item.add_marker(pytest.mark.thorough)
        if is_in(item.path, FAST) and not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.fast)
        if "small_disk" in item.fixturenames:
            item.add_marker(pytest.mark.root)
    items.sort(key=lambda item: (not is_in(item.path, FORKING), not is_in(item.path, LONG)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """One process runs all tests of a file, which share what they make, and those of `FORKING`.

    Not by marks of groups, which pytest-xdist 3.8 writes where pytest 9.2 does not read them: each
    test would be handed out alone, and every process would make what a file's tests share.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return "forking" if path.removeprefix("tests/") in FORKING else path

    return ByFile(config, log)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: no search for garbage walks through it again."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item) -> None:
    """Has TensorFlow optimize the graphs of a test, or not; before any fixture of a module."""
    import tensorflow as tf

    as_traced = is_in(item.path, AS_TRACED) and not item.get_closest_marker("slow")
    size = NO_SIZE if as_traced else ALL_SIZES
    if tf.config.optimizer.get_experimental_options().get("min_graph_nodes") != size:
        tf.config.optimizer.set_experimental_options({"min_graph_nodes": size})


def cases_of(file: str) -> frozenset[str]:
    """Returns the cases that a file lists, as pytest names them below this folder."""
    lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


@functools.cache
def is_in(path: pathlib.Path, names: tuple[str, ...]) -> bool:
    """Returns whether a file is one of these files, or in one of these folders."""
    return any(path.is_relative_to(ROOT / name) for name in names)


@pytest.fixture(autouse=True, scope="session")
def iterators_end_at_once():
    """Iterators of tests and of Keras do not wait for a tuner at their end, as those of towers."""
    import tensorflow as tf

    plain = tf.data.Dataset.__iter__

    @functools.wraps(plain)
    def without_tuner(dataset):
        options = tf.data.Options()
        options.autotune.enabled = False
        return plain(dataset.with_options(options))

    tf.data.Dataset.__iter__ = without_tuner


@pytest.fixture(autouse=True)
def fresh_keras(request, monkeypatch):
    """Each test starts with the float32 policy, a fixed seed and fresh layer names.

    The kernels of TensorFlow stay for the default tests of a file: a function that several of them
    call would be optimized and placed again for each. Slow ones, some of large models, begin anew.
    """
    import keras
    from tensorflow.python import pywrap_tfe

    with monkeypatch.context() as keeping:
        if not request.node.get_closest_marker("slow"):
            keeping.setattr(pywrap_tfe, "TFE_ContextClearCaches", lambda context: None)
        keras.utils.clear_session(free_memory=False)
        keras.utils.set_random_seed(7)
    keras.config.set_dtype_policy("float32")
    yield
    keras.config.set_dtype_policy("float32")


@pytest.fixture
def float64(fresh_keras):
    """Keras computes in float64, for one test."""
    from tests.kinds import comparison

    with comparison.float64():
        yield


@pytest.fixture(autouse=True, scope="module")
def fresh_kernels():
    """Each file starts with no kernel of another one's functions."""
    from tensorflow.python.eager import context

    context.context().clear_kernel_cache()


@pytest.fixture(autouse=True)
def nothing_is_converted(monkeypatch):
    """`tf.data` has AutoGraph convert nothing of ours, which takes long and warns on Python 3.13.

    What it converts because a function of a user's own calls it does not count.
    """
    from tensorflow.python.autograph.impl import api

    converted, convert = [], api._convert_actual

    def note_and_convert(entity, context):
        around = [frame.f_code for frame, _ in traceback.walk_stack(sys._getframe())]
        is_given = [code.co_name for code in around].count("converted_call") == 1
        of_data = any(code.co_filename.endswith("structured_function.py") for code in around)
        if is_given and of_data and entity.__module__.startswith("towers."):
            converted.append(entity)
        return convert(entity, context)

    monkeypatch.setattr(api, "_convert_actual", note_and_convert)
    yield
    assert not converted


@pytest.fixture
def small_disk(tmp_path):
    """A mounted folder with room for one megabyte; skips where mounting is not permitted."""
    folder = tmp_path / "small_disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True, timeout=600)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"a small file system cannot be mounted here: {error}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=600)


@pytest.fixture
def sums_as_written():
    """What `towers.enable_determinism` does to sums, for one test."""
    import tensorflow as tf

    before = tf.config.optimizer.get_experimental_options()
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": False})
    yield
    tf.config.optimizer.set_experimental_options({"arithmetic_optimization": True, **before})
