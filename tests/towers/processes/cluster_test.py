"""TF_CONFIG is read as TensorFlow's guide describes it, and as Kubeflow's TFJob writes it."""

import json

import pytest

from towers.processes.peers import read_cluster


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
