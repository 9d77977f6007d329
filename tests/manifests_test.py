"""The files for schedulers in docs/ start commands that exist, in processes that meet."""

import shlex

import pytest
import yaml

from tests.paths import ROOT
from towers.scripts.launching.cluster import choose_cluster
from towers.scripts.launching.processes import train_arguments
from towers.scripts.main import read_command


def documents(name):
    return list(yaml.safe_load_all((ROOT / "docs" / name).read_text()))


def options_of(words):
    """Returns the options of a command, what it launches included."""
    assert words[0] == "towers"
    command, options = read_command(words[1:])
    if command.__name__.endswith("launch"):
        train_arguments(options.command_line)
    return options


def test_kubeflow_starts_workers_only():
    job, policy = documents("tfjob.yaml")
    ((kind, replicas),) = job["spec"]["tfReplicaSpecs"].items()
    (container,) = replicas["template"]["spec"]["containers"]
    assert kind == "Worker" and container["name"] == "tensorflow"
    assert options_of(container["command"]).recipe == "shapes"
    labels = policy["spec"]["podSelector"]["matchLabels"]
    assert labels == {"training.kubeflow.org/job-name": job["metadata"]["name"]}


@pytest.mark.parametrize("index", [0, 1])
def test_each_pod_of_an_indexed_job_is_an_address_of_its_service(index):
    service, job, policy = documents("indexed-job.yaml")
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    (container,) = pod["containers"]
    words = [*container["command"], *container["args"]]
    words[words.index("$(JOB_COMPLETION_INDEX)")] = str(index)
    options = options_of(words)
    addresses, here = choose_cluster(options, environment={})
    hosts = [f"{name}-{pod}.{service['metadata']['name']}" for pod in range(spec["completions"])]
    assert [one.rpartition(":")[0] for one in addresses] == hosts and list(here) == [index]
    assert spec["completions"] == spec["parallelism"] and pod["subdomain"] in hosts[0]
    assert service["spec"]["selector"] == {"job-name": name}
    assert policy["spec"]["podSelector"]["matchLabels"] == {"job-name": name}


def test_kuberay_has_a_node_for_each_worker():
    (job,) = documents("rayjob.yaml")
    options = options_of(shlex.split(job["spec"]["entrypoint"]))
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert options.workers == (group["replicas"],) and options.storage


def test_the_batch_file_of_slurm_starts_again_what_was_asked_to_save():
    text = (ROOT / "docs" / "job.sbatch").read_text()
    (line,) = [one for one in text.splitlines() if "srun" in one]
    assert options_of(line[line.index("towers ") :].split()).recipe == "shapes"
    assert "143) exec scontrol requeue" in text and "--signal=TERM" in text
