"""What a step on two GPUs may cost: copies, waits and bytes, counted on pretended GPUs.

A recipe's batches have unknown shapes and, if they are text, padding.
"""

import json

import pytest

SMALL_BATCH = 80_000  # Bytes of a shard, seeds and shapes, which are not parameters.
FULL_PACK = 2 * 2**20  # Bytes of gradients that NCCL sums at once, or more.
ALIGNMENT = 128  # Bytes by which a gradient may be longer in a pack.
SCALARS = 64  # Bytes of the loss, the weight and the metrics of a tower, which always travel.
READS = 1  # The host asks once, on any number of GPUs, whether the gradient is finite.
SMALL = 1024  # Bytes between two GPUs that are not of gradients: states, scalars, the factor.
SPARSE = {"ptb_small": 1}  # A sparse gradient travels alone: its rows, since the host has the ids.


@pytest.fixture(scope="module")
def count(run_on_gpus):
    """Returns `count(recipe, way, num_gpus=2, **options) -> facts` of `counts_worker`."""

    def run(recipe, way, num_gpus=2, **options):
        arguments = [recipe, num_gpus, way, json.dumps(options)]
        code, output = run_on_gpus(num_gpus, "-m", "tests.gpu.counts_worker", *arguments)
        assert code == 0, output
        return json.loads([line for line in output.splitlines() if line.startswith("{")][-1])

    return run


def check_replicated(facts):
    """Fails unless a step with a copy on every tower keeps its budgets."""
    first, *others = facts["devices"]
    num_gpus = len(facts["devices"])
    assert all(device["to_host"] == 0 for device in others)  # Nothing there waits for the host.
    assert first["to_host"] <= READS
    travelled = sum(device["bytes_to_peers"] for device in facts["devices"])
    rounds = 2 * (num_gpus - 1)  # 2 (n - 1) / n of the gradients, for n GPUs.
    ring, padding = rounds * facts["gradient_bytes"], rounds * ALIGNMENT * facts["num_variables"]
    assert travelled <= 1.05 * ring + padding + SCALARS * num_gpus
    if facts["recipe"] not in SPARSE:
        assert travelled >= 0.95 * ring
    assert facts["bytes_of_a_check"] <= SCALARS


def check_nccl(facts):
    """Fails unless NCCL sums the gradients of each tower in packs, and nothing else travels."""
    first, *others = facts["devices"]
    assert all(device["to_host"] == 0 for device in others)
    assert first["to_host"] <= READS + SPARSE.get(facts["recipe"], 0)
    for device in facts["devices"]:
        assert device["reductions"] <= 1 + facts["gradient_bytes"] / FULL_PACK
        if facts["recipe"] not in SPARSE:
            more = device["reduced_bytes"] - facts["gradient_bytes"]
            assert 0 <= more <= ALIGNMENT * facts["num_variables"]
            assert device["copied_to_peers"] <= SMALL * len(facts["devices"])
    assert facts["bytes_of_a_check"] <= SCALARS


def check_on_cpu(facts):
    """Fails unless a step with parameters on the CPU keeps its budgets."""
    assert len(facts["pack_bytes"]) == 1  # Of one dtype.
    for device in facts["devices"]:
        assert device["bytes_to_peers"] == 0
        assert device["packs_from_host"] == [1]  # Pinned.
        assert device["bytes_from_host"] - facts["pack_bytes"][0] <= SMALL_BATCH
        assert device["to_host"] <= 2 + SPARSE.get(facts["recipe"], 0)
        assert device["pageable_to_host"] == 0
        values = device["bytes_to_host"] - SCALARS - ALIGNMENT * facts["num_variables"]
        assert values <= 1.05 * facts["gradient_bytes"]


@pytest.mark.slow
def test_a_language_model_with_a_copy_on_every_gpu_keeps_its_budgets(count):
    check_replicated(count("ptb_small", "replicated"))


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["shapes", "cifar10_tutorial", "cifar10_resnet", "chatbot"])
def test_a_step_with_a_copy_on_every_gpu_keeps_its_budgets(recipe, count):
    check_replicated(count(recipe, "replicated"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "num_gpus", "options"),
    [
        ("shapes", 2, {}),
        ("cifar10_tutorial", 4, {}),
        ("cifar10_resnet", 2, {}),
        ("ptb_small", 2, {}),
        ("chatbot", 4, {}),
        ("chatbot", 2, {"precision": "float64"}),
        ("cifar10_tutorial", 2, {"accumulate": 2}),
    ],
)
def test_nccl_sums_the_gradients_of_a_gpu_in_packs(recipe, num_gpus, options, count):
    check_nccl(count(recipe, "nccl", num_gpus, **options))


@pytest.mark.slow
@pytest.mark.parametrize("num_gpus", [1, 4])
def test_the_budgets_hold_on_one_and_four_gpus(num_gpus, count):
    check_replicated(count("chatbot", "replicated", num_gpus))
    check_on_cpu(count("chatbot", "cpu", num_gpus))


@pytest.mark.slow
@pytest.mark.parametrize(
    "recipe", ["shapes", "cifar10_resnet", "chatbot", "chatbot_transformer", "ptb_small"]
)
def test_a_step_with_parameters_on_the_cpu_keeps_its_budgets(recipe, count):
    check_on_cpu(count(recipe, "cpu"))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"precision": "float16"}, {"accumulate": 2}])
def test_the_budgets_hold_in_every_way_to_train(options, count):
    """A loss scale adds three reads: it is a state that follows from the gradient."""
    facts = count("chatbot", "replicated", **options)
    assert [device["to_host"] for device in facts["devices"][1:]] == [0]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["ptb_small", "chatbot", "chatbot_transformer"])
def test_each_stage_of_each_tower_runs_on_its_gpu_and_copies_travel_between_equal_stages(
    recipe, count
):
    facts = count(recipe, "replicated", 4, gpus_per_tower=2)
    expected = {"0 0": ["GPU:0"], "0 1": ["GPU:1"], "1 0": ["GPU:2"], "1 1": ["GPU:3"]}
    assert facts["stages"] == expected
    assert [device["to_host"] for device in facts["devices"][2:]] == [0, 0]


@pytest.mark.slow
def test_activations_travel_between_stages_and_no_gradient_of_a_variable(count):
    facts = count("chatbot", "replicated", 2, gpus_per_tower=2, published=True)
    for device in facts["devices"]:
        assert device["bytes_to_peers"] <= 0.2 * facts["gradient_bytes"]


@pytest.mark.slow
def test_batches_travel_through_page_locked_memory(count):
    for device in count("cifar10_tutorial", "replicated")["devices"]:
        assert device["bytes_from_host"] - device["pinned_bytes"] <= SMALL
