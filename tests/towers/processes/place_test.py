"""The place that TF_CONFIG or Slurm gives a process is read, and what is wrong is refused."""

import inspect
import json
import re
import warnings

import pytest
import tensorflow as tf

from towers.processes.place import Place, find_place, node_names, read_cluster


def task(index, local, *, nodes="127.0.0.[1-2]", number=3, each="2,1", **others):
    """The environment of a task that srun started."""
    return {
        "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": str(number),
        "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": each,
        "SLURM_PROCID": str(index), "SLURM_LOCALID": str(local), **others,
    }  # fmt: skip


def config(index, *, addresses=("127.0.0.1:15304", "127.0.0.1:15305", "127.0.0.2:15306")):
    cluster = {"worker": list(addresses)}
    task = {"type": "worker", "index": index}
    return {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu1,cpu-2.example", ["gpu1", "cpu-2.example"]),
        ("gpu[01-03,07]", ["gpu01", "gpu02", "gpu03", "gpu07"]),
        ("gpu[9-11],x", ["gpu9", "gpu10", "gpu11", "x"]),
        ("r[1-2]n[08-10]", [f"r{rack}n{node}" for rack in "12" for node in ("08", "09", "10")]),
        ("rack[1-2]n[3-4]-ib", ["rack1n3-ib", "rack1n4-ib", "rack2n3-ib", "rack2n4-ib"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, nodes):
    assert list(node_names(text)) == nodes


@pytest.mark.parametrize("text", ["", "a,", "a[", "a[]", "a[2-1]", "a[1-]", "a[x]", "a b", "[1]]"])
def test_a_broken_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError, match="SLURM_STEP_NODELIST must be"):
        list(node_names(text))


def test_all_tasks_of_a_job_see_the_same_addresses_and_their_own_number():
    places = [find_place(task(*one)) for one in ((0, 0), (1, 1), (2, 0))]
    addresses = ["127.0.0.1:15304", "127.0.0.1:15305", "127.0.0.2:15306"]
    assert places == [Place(addresses, index) for index in range(3)]


def test_two_steps_of_a_job_that_share_a_node_have_other_ports():
    one, other = (find_place(task(0, 0, SLURM_STEP_ID=step)).addresses for step in "34")
    assert not set(one) & set(other)


@pytest.mark.parametrize(
    ("nodes", "each", "expected"),
    [
        ("rack[1-2]n[08-10]", "1(x6)", ["rack1n08", "rack1n09", "rack1n10", "rack2n08"]),
        ("a,b[1-2]", "2(x3)", ["a", "a", "b1", "b1"]),
        ("n[1-2]", "4,2", ["n1", "n1", "n1", "n1"]),
    ],
)
def test_hosts_are_those_of_the_tasks(nodes, each, expected):
    place = find_place(task(0, 0, nodes=nodes, number=6, each=each))
    assert [one.partition(":")[0] for one in place.addresses][:4] == expected


def test_the_resolver_of_tensorflow_still_reads_no_such_list(monkeypatch):
    """Once it does, it can take the place of our own reader."""
    for name, value in task(0, 0, nodes="rack[1-2]n[08-10]", number=6, each="1(x6)").items():
        monkeypatch.setenv(name, value)
    resolver = tf.distribute.cluster_resolver.SlurmClusterResolver
    with pytest.raises(ValueError):
        resolver(auto_set_gpu=False).cluster_spec()


def test_a_process_alone_has_no_place():
    assert find_place({}) is None
    assert find_place(task(0, 0, number=1)) is None
    assert find_place(config(0, addresses=["a:1"])) is None


def test_tasks_without_a_count_for_each_node_are_spread_evenly():
    environment = task(2, 0, number=4)
    del environment["SLURM_STEP_TASKS_PER_NODE"]
    hosts = [one.partition(":")[0] for one in find_place(environment).addresses]
    assert hosts == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]


def test_tf_config_wins_over_slurm():
    assert find_place({**task(0, 0), **config(1)}).index == 1


WRONG = {
    "another distribution": (task(1, 0), "--distribution=block"),
    "past the end": (task(3, 0), "task 3 of 3"),
    "no number": (task(0, "x"), "SLURM_LOCALID must be a whole number. Received 'x'"),
    "other counts": (task(0, 0, each="2(x2)"), "SLURM_STEP_TASKS_PER_NODE must be 3 tasks"),
    "no cluster": ({"TF_CONFIG": "{}"}, "TF_CONFIG must be"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_environment_is_refused(name):
    environment, expected = WRONG[name]
    with pytest.raises(ValueError, match=expected) as error:
        find_place(environment)
    assert len(str(error.value)) <= 300


def test_the_script_of_a_job_trains_alone_with_one_warning():
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("default")
        assert find_place({"SLURM_NTASKS": "4"}) is None
        assert find_place({"SLURM_NTASKS": "4"}) is None
    (warning,) = found
    assert re.search("job of 4 tasks, and trains alone.* write srun", str(warning.message))


def test_the_place_of_a_process_is_read():
    cluster = {"worker": ["job-worker-0.team.svc:2222", "job-worker-1.team.svc:2222"]}
    task = {"type": "worker", "index": 1}
    text = json.dumps({"cluster": cluster, "task": task, "environment": "cloud"})
    assert read_cluster(text) == (cluster["worker"], 1)


def test_a_process_that_is_the_only_one_may_be_of_any_kind():
    text = '{"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}}'
    assert read_cluster(text) == (["a:1"], 0)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"cluster": "a:1"}',
        '{"cluster": {"worker": ["a:1", "b:1"]}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 2}}',
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "ps", "index": 0}}',
        '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
    ],
)
def test_a_wrong_cluster_is_refused(text):
    with pytest.raises(ValueError, match="TF_CONFIG must be"):
        read_cluster(text)


def test_help_shows_no_value_of_the_environment():
    assert inspect.signature(find_place).parameters["environment"].default is None
