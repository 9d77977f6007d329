"""Counts what GPUs do in one step of a recipe, in the loop of the trainer; prints it as JSON.

python -m tests.gpu.counts_worker RECIPE NUM_GPUS WAY [OPTIONS]: WAY is a placement of the
parameters, `nccl` for copies of them with that exchange, or a rival of `python -m benchmarks`;
OPTIONS are a JSON object.
"""

import json
import re
import sys

import towers
from benchmarks import rivals
from tests.gpu import recipe_steps
from tests.gpu.values import ignore_values
from tests.pretended_gpu.pretended_gpu import KERNELS, WAITS, record
from towers.batches import shards
from towers.devices.determinism import enable_determinism
from towers.devices.op_devices import short_device
from towers.devices.stages import stage_in

FEW, MANY = 3, 7  # Steps; what MANY have more than FEW is counted, so no beginning and no end.


def main():
    name, num_gpus, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    options = json.loads(sys.argv[4]) if len(sys.argv) > 4 else {}
    print(json.dumps(facts_of(name, num_gpus, way, options)), flush=True)


def facts_of(name, num_gpus, way, options):
    """Returns what the GPUs do in a step; the arguments are those of the command."""
    ignore_values()
    if options.pop("deterministic", False):
        enable_determinism()
    sizes = recipe_steps.PUBLISHED if options.pop("published", False) else recipe_steps.SMALL
    per_tower = options.pop("gpus_per_tower", 1)
    own_towers = num_gpus // per_tower
    devices = towers.select_devices(own_towers, gpus_per_tower=per_tower).groups
    processes = towers.processes.join_processes()  # Those that TF_CONFIG names.
    num_towers = own_towers * processes.count
    task = recipe_steps.make_task(sizes[name], num_towers, static=way in rivals.RIVALS)
    facts = {"recipe": name, "gpus": num_gpus, "way": way}
    if way in rivals.RIVALS:
        # They compute shapes on the GPU, which are not there; so they are given fixed ones.
        shards.any_number_of_rows = lambda spec: spec
        run = rivals.RIVALS[way](rivals.Task(*task), [group[0] for group in devices])
    else:
        step = recipe_steps.build_step(task, devices, way, processes=processes, **options)
        facts["stages"] = stages_of_ops(step, own_towers)
        facts["gradient_bytes"] = recipe_steps.parameter_bytes(step)
        facts["num_variables"] = len(step.update.copies.shared.all)
        facts["pack_bytes"] = upload_bytes(step)
        run = trainer_run(step, task.dataset)
    run(FEW)
    if way in ("replicated", "nccl"):
        with record() as log:
            step.check_copies()
        facts["bytes_of_a_check"] = int(log.of("d2h")["bytes"].sum())
    logs = []
    for num_steps in (FEW, MANY):
        with record() as log:
            run(num_steps)
        logs.append(log)
    facts["devices"] = [
        counts(*logs, device, facts.get("pack_bytes", ())) for device in range(num_gpus)
    ]
    processes.wait()
    return facts


def trainer_run(step, dataset):
    """Returns `run(num_steps)`, a training by the trainer that reads only its last loss."""

    def run(num_steps):
        results = []
        updates = towers.steps.SynchronousUpdates(step, towers.batches_from(dataset))
        towers.Trainer.making(updates, [lambda report: results.append(report.results)]).train(
            steps=num_steps
        )
        float(results[-1].loss)

    return run


def pinned(copies):
    """Returns the bytes of the copies from and to page-locked memory."""
    return copies["bytes"][copies["pinned"] == 1].sum()


def upload_bytes(step):
    """Returns the size of each vector in which the parameters travel to a tower."""
    names = re.compile(r"inputs/(concat(_\d+)?|DeepCopy(_\d+)?)")
    vectors = [op.outputs[0] for op in step.graph.get_operations() if names.fullmatch(op.name)]
    return [vector.dtype.size * vector.shape.num_elements() for vector in vectors]


def counts(few, many, device, packs=()):
    """Returns the commands of a device in a step, by kind, and their bytes."""

    def per_step(value):
        return (value(many) - value(few)) / (MANY - FEW)

    def number(kinds, **where):
        return per_step(lambda log: int(chosen(log, kinds, **where).sum()))

    def chosen(log, kinds, **where):
        found = log.of(*kinds, device=device)
        keep = found["bytes"] >= 0
        for field, value in where.items():
            keep &= found[field] == value
        return keep

    return {
        "packs_from_host": [number(["h2d"], bytes=size, pinned=1) for size in packs],
        "launches": number(KERNELS),
        "to_host": number(["d2h"]),
        "from_host": number(["h2d"]),
        "to_peers": number(["p2p"]),
        "waits": number(WAITS),
        "reductions": number(["nccl"]),
        "reduced_bytes": per_step(lambda log: int(log.of("nccl", device=device)["bytes"].sum())),
        "copied_to_peers": per_step(lambda log: int(log.of("p2p", device=device)["bytes"].sum())),
        "pageable_from_host": number(["h2d"], pinned=0),
        "pageable_to_host": number(["d2h"], pinned=0),
        "host_waits": per_step(lambda log: log.host_waits(device)),
        "pinned_bytes": per_step(lambda log: int(pinned(log.of("h2d", "d2h", device=device)))),
        "bytes_to_host": per_step(lambda log: int(log.of("d2h", device=device)["bytes"].sum())),
        "bytes_from_host": per_step(lambda log: int(log.of("h2d", device=device)["bytes"].sum())),
        "bytes_to_peers": per_step(lambda log: log.peer_bytes(device)),
        "small_to_host": per_step(
            lambda log: int((log.of("d2h", device=device)["bytes"] <= 64).sum())
        ),
        "small_from_host": per_step(
            lambda log: int((log.of("h2d", device=device)["bytes"] <= 64).sum())
        ),
    }


def stages_of_ops(step, num_towers):
    """Returns the GPUs of the ops of each stage of each tower, by the names of the ops."""
    found = {}
    for op in step.graph.get_operations():
        stage = stage_in(op.name)
        for tower in range(num_towers):
            if f"tower_{tower}/" in op.name and stage is not None and "GPU" in op.device:
                found.setdefault(f"{tower} {stage}", set()).add(short_device(op.device))
    return {key: sorted(devices) for key, devices in found.items()}


if __name__ == "__main__":
    main()
