"""The place that Slurm or TF_CONFIG gives a process is read, and contradictions are refused."""

import json

import pytest
import yaml

from tests.paths import ROOT
from towers.scripts.launching.addresses import LaunchOptions, choose_cluster
from towers.scripts.launching.schedulers import node_names, scheduled_place, warn_alone
from towers.scripts.main import build_parser


def task(index, local, *, nodes="127.0.0.[1-2]", number=3, each="2,1", **others):
    """The environment of a task that srun started."""
    return {
        "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "2", "SLURM_STEP_NUM_TASKS": str(number),
        "SLURM_STEP_NODELIST": nodes, "SLURM_STEP_TASKS_PER_NODE": each,
        "SLURM_PROCID": str(index), "SLURM_LOCALID": str(local), **others,
    }  # fmt: skip


def config(index, *, addresses=("127.0.0.1:15304", "127.0.0.1:15305", "127.0.0.2:15306")):
    cluster = {"worker": list(addresses)}
    return {
        "TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
    }


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("gpu1", ["gpu1"]),
        ("gpu1,cpu-2.example", ["gpu1", "cpu-2.example"]),
        ("gpu[01-03,07]", ["gpu01", "gpu02", "gpu03", "gpu07"]),
        ("gpu[9-11],x", ["gpu9", "gpu10", "gpu11", "x"]),
        ("rack[1-2]n[3-4]-ib", ["rack1n3-ib", "rack1n4-ib", "rack2n3-ib", "rack2n4-ib"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, nodes):
    assert node_names(text) == nodes


@pytest.mark.parametrize("text", ["", "a,", "a[", "a[]", "a[2-1]", "a[1-]", "a[x]", "a b", "[1]]"])
def test_a_broken_list_of_nodes_is_refused(text):
    with pytest.raises(ValueError, match="SLURM_STEP_NODELIST must be"):
        node_names(text)


def test_all_tasks_of_a_job_see_the_same_addresses_and_their_own_number():
    places = [scheduled_place(task(*one)) for one in ((0, 0), (1, 1), (2, 0))]
    addresses = ["127.0.0.1:15304", "127.0.0.1:15305", "127.0.0.2:15306"]
    assert [place.index for place in places] == [0, 1, 2]
    assert all(place.addresses == addresses for place in places)


def test_ports_are_those_of_the_option_or_those_that_slurm_reserved():
    reserved = {"SLURM_STEP_RESV_PORTS": "12000-12001"}
    assert [one.rpartition(":")[2] for one in scheduled_place(task(0, 0), 7000).addresses] == [
        "7000", "7001", "7002",
    ]  # fmt: skip
    assert [one[-5:] for one in scheduled_place(task(0, 0, **reserved)).addresses] == [
        "12000", "12001", "12000",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"SLURM_STEP_RESV_PORTS must be .* Received '12000-x'"):
        scheduled_place(task(0, 0, SLURM_STEP_RESV_PORTS="12000-x"))


def test_a_process_alone_has_no_place():
    assert scheduled_place({}) is None
    assert scheduled_place(task(0, 0, number=1)) is None
    assert scheduled_place(config(0, addresses=["a:1"])) is None


def test_a_task_that_trains_alone_is_warned():
    with pytest.warns(RuntimeWarning, match="started 3 tasks, .* srun towers launch -- train"):
        warn_alone(task(0, 0))
    for others in ({}, config(0), {**task(0, 0), **config(0)}, task(0, 0, number=1)):
        warn_alone(others)  # A warning would be an error here.


def test_tasks_without_a_count_for_each_node_are_spread_evenly():
    environment = task(2, 0, number=4)
    del environment["SLURM_STEP_TASKS_PER_NODE"]
    hosts = [one.partition(":")[0] for one in scheduled_place(environment).addresses]
    assert hosts == ["127.0.0.1", "127.0.0.1", "127.0.0.2", "127.0.0.2"]


def test_a_scheduler_starts_one_process_here():
    cluster = choose_cluster(LaunchOptions(), task(2, 0))
    assert cluster.here == [2] and len(cluster.addresses) == 3 and not cluster.are_all_here
    assert choose_cluster(LaunchOptions(), config(1)).here == [1]
    assert choose_cluster(LaunchOptions(), {**task(1, 1), **config(1)}).here == [1]


CONTRADICTIONS = {
    "another distribution": ({}, task(1, 0), "--distribution=block"),
    "past the end": ({}, task(3, 0), "SLURM_PROCID must be a number below 3"),
    "no number": ({}, task(0, "x"), "SLURM_LOCALID must be a whole number. Received 'x'"),
    "other counts": ({}, task(0, 0, each="2(x2)"), "SLURM_STEP_TASKS_PER_NODE must be 3 tasks"),
    "two places": ({}, {**task(0, 0), **config(1)}, "TF_CONFIG makes this process 1 of 3"),
    "processes": ({"processes": 2}, task(0, 0), "leave out --processes, or remove the variables"),
    "cluster": ({"cluster": ("a:1", "b:2"), "index": 0}, config(0), "leave out --cluster"),
    "machines": (
        {"nnodes": 2, "node_rank": 0, "coordinator": "a:1"},
        config(0),
        "leave out --coordinator, or remove it from the environment",
    ),
    "a script": ({}, {"SLURM_NTASKS": "4"}, "write srun towers launch"),
    "no cluster": ({}, {"TF_CONFIG": "{}"}, "TF_CONFIG must be"),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_contradicting_environments_are_refused(name):
    options, environment, expected = CONTRADICTIONS[name]
    with pytest.raises(ValueError, match=expected) as error:
        choose_cluster(LaunchOptions(**options), environment)
    assert len(str(error.value)) <= 300


def test_the_script_of_a_job_may_start_processes_of_its_machine():
    cluster = choose_cluster(LaunchOptions(processes=2), {"SLURM_NTASKS": "4"})
    assert cluster.are_all_here and cluster.here == [0, 1]


def test_the_manifest_starts_a_command_that_exists_in_workers_only():
    job, policy = yaml.safe_load_all((ROOT / "docs" / "tfjob.yaml").read_text())
    (kind,) = job["spec"]["tfReplicaSpecs"]
    (container,) = job["spec"]["tfReplicaSpecs"][kind]["template"]["spec"]["containers"]
    assert kind == "Worker" and container["name"] == "tensorflow"
    program, *arguments = container["command"]
    assert program == "towers" and build_parser().parse_args(arguments).recipe == "shapes"
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert labels == {"training.kubeflow.org/job-name": job["metadata"]["name"]}
