"""Which devices get a tower where there is no GPU, and what is said about a wrong request."""

import pytest
import tensorflow as tf

import towers
from tests.programs import exit_code
from towers.devices.selection import check_virtual, choose_gpus, to_megabytes


@pytest.mark.parametrize("num_towers", [None, 1])
def test_without_gpu_one_tower_is_the_cpu(num_towers):
    devices = towers.select_devices(num_towers)
    assert devices.towers == ("/CPU:0",)
    assert devices.description == "1 tower on the CPU (no GPU found)"


def test_without_gpu_several_towers_are_virtual_cpus_beside_the_parameters():
    devices = towers.select_devices(3)
    assert devices.towers == ("/CPU:1", "/CPU:2", "/CPU:3")
    assert devices.description == "3 towers on virtual CPUs (no GPU found)"
    assert len(tf.config.list_logical_devices("CPU")) > 3


def test_without_gpu_a_tower_may_have_several_virtual_cpus():
    devices = towers.select_devices(2, gpus_per_tower=2)
    assert devices.groups == (("/CPU:1", "/CPU:2"), ("/CPU:3", "/CPU:4"))
    assert devices.towers == ("/CPU:1", "/CPU:3")
    assert devices.description == "2 towers on 2 virtual CPUs each (no GPU found)"
    assert towers.select_devices(1, gpus_per_tower=2).groups == (("/CPU:1", "/CPU:2"),)


def test_the_number_for_a_machine_without_gpu_gives_way_to_the_number_of_towers():
    assert towers.select_devices(cpu_towers=2).towers == ("/CPU:1", "/CPU:2")
    assert towers.select_devices(3, cpu_towers=2).towers == ("/CPU:1", "/CPU:2", "/CPU:3")


@pytest.mark.parametrize(
    "options", [{"gpus": [0]}, {"virtual": True, "num_towers": 2}], ids=["by number", "virtual"]
)
def test_a_gpu_that_was_asked_for_and_is_not_there_is_an_error(options):
    message = r"GPU 0 is not there: TensorFlow finds no GPU\. Leave out --gpus and --virtual"
    with pytest.raises(ValueError, match=message):
        towers.select_devices(**options)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"num_towers": 0}, r"at least 1\. Received 0"),
        ({"num_towers": -2}, r"at least 1\. Received -2"),
        ({"cpu_towers": 0}, r"at least 1\. Received 0"),
        ({"num_towers": "2"}, r"whole number of at least 1\. Received '2'"),
        ({"num_towers": 2.0}, r"whole number of at least 1\. Received 2\.0"),
        ({"gpus": []}, r"different numbers from 0 on.*\[\]"),
        ({"gpus": [1, 1]}, r"different numbers from 0 on.*\[1, 1\]"),
        ({"gpus": 0}, r"different numbers from 0 on, such as \[0, 2\]\. Received 0"),
        ({"gpus": "0,2"}, r"different numbers from 0 on.*'0,2'"),
        ({"gpus": [-1]}, r"different numbers from 0 on.*\[-1\]"),
        ({"gpus": [0, 1], "num_towers": 3}, r"one tower per GPU\. Received 3 towers.*\[0, 1\]"),
        ({"gpus": [0, 1], "num_towers": 2, "virtual": True}, r"splits one GPU.*\[0, 1\]"),
        ({"gpus": [0, 1, 2], "gpus_per_tower": 2}, r"3 GPUs cannot make towers of 2: 1 would be"),
        ({"gpus": [0], "gpus_per_tower": 2}, r"1 GPUs cannot make towers of 2.*Give a smaller"),
        ({"gpus": [0, 1], "gpus_per_tower": 2, "num_towers": 2}, r"one tower for every 2 GPUs"),
        ({"gpus_per_tower": 0}, r"at least one GPU.*Received 0"),
        ({"virtual": True}, r"splits one GPU into several towers\. Received None.*give the number"),
        ({"gpu_memory": 0}, r"gpu_memory must be above 0.*Received 0"),
        ({"gpu_memory": -1.5}, r"gpu_memory must be above 0.*-1\.5"),
        ({"gpu_memory": float("nan")}, r"gpu_memory must be above 0.*nan"),
    ],
)
def test_contradictions_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        towers.select_devices(**options)


def test_a_chosen_gpu_may_be_split():
    check_virtual(2, [1], virtual=True)
    assert choose_gpus(["zero", "one"], 2, [1], virtual=True) == [1]


@pytest.mark.parametrize(
    "num_towers, gpus, virtual, chosen",
    [
        (None, None, False, [0, 1]),
        (1, None, False, [0]),
        (None, [1, 0], False, [1, 0]),
        (4, None, True, [0]),
    ],
)
def test_gpus_are_chosen_in_tower_order(num_towers, gpus, virtual, chosen):
    assert choose_gpus(["zero", "one"], num_towers, gpus, virtual) == chosen


@pytest.mark.parametrize("num_towers, gpus, missing", [(3, None, 2), (None, [0, 5], 5)])
def test_a_missing_gpu_is_named_with_those_that_are_there(num_towers, gpus, missing):
    message = rf"GPU {missing} is not there: TensorFlow finds GPUs 0 to 1\. .*--virtual"
    with pytest.raises(ValueError, match=message):
        choose_gpus(["zero", "one"], num_towers, gpus, virtual=False)


def test_gpu_memory_above_one_is_gigabytes():
    assert to_megabytes(4, number=0) == 4096
    assert to_megabytes(1.5, number=0) == 1536


@pytest.mark.parametrize("tf32", [False, True])
def test_tf32_is_switched_where_it_is_asked_for(tf32):
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    try:
        towers.select_devices(tf32=tf32)
        assert tf.config.experimental.tensor_float_32_execution_enabled() == tf32
        towers.select_devices()
        assert tf.config.experimental.tensor_float_32_execution_enabled() == tf32
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)


def test_a_fraction_of_an_unknown_gpu_is_refused():
    with pytest.raises(ValueError, match=r"memory of GPU 999 is unknown.*0\.5; give gigabytes"):
        to_megabytes(0.5, number=999)


def select_and_write(path):
    """Selects devices, runs TensorFlow on one and selects others; writes down what comes."""
    selected = " ".join(towers.select_devices(2).towers)
    with tf.device("/CPU:2"):
        device = tf.constant(1).device[-5:]
    with pytest.raises(RuntimeError) as refused:
        towers.select_devices(4)
    path.write_text(f"{selected}\n{device}\n{refused.value}")


def test_devices_are_selected_in_a_fresh_process_and_not_in_a_running_one(tmp_path):
    assert exit_code(select_and_write, tmp_path / "found.txt") == 0
    towers_line, device, error = (tmp_path / "found.txt").read_text().splitlines()
    assert towers_line == "/CPU:1 /CPU:2"
    assert device == "CPU:2"
    assert "TensorFlow is already running. Select the devices before the first tensor" in error


def test_a_device_of_tensorflow_is_one_device_and_no_tower_of_two():
    devices = tf.config.list_logical_devices("CPU")[:1]
    assert towers.Placement(devices).groups == ((devices[0].name,),)
    with pytest.raises(ValueError, match=r"device names, one per tower.*PhysicalDevice"):
        towers.Placement(tf.config.list_physical_devices("CPU")[:1])
