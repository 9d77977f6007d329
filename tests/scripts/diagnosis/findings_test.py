"""A machine that is not right is noticed, with what to do about it."""

import json

import pytest

from towers.scripts.diagnosis import findings, first_law
from towers.scripts.diagnosis.findings import OK, WARNING, WRONG
from towers.scripts.main import main

PEERS = """
     GPU0    GPU1
 GPU0    X    {one}
 GPU1    OK    X

Legend:
  X    = Self
"""


def states(found):
    return [finding.state for finding in found]


def test_gpus_that_tensorflow_does_not_find_are_noticed(tmp_path):
    driver = tmp_path / "version"
    assert states(findings.find_driver(driver, 0)) == [OK]
    driver.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54\nGCC version: 12\n")
    assert states(findings.find_driver(driver, 2)) == [OK]
    first, second = findings.find_driver(driver, 0)
    assert first.found == "NVIDIA UNIX x86_64 Kernel Module  550.54"
    assert second.state == WRONG and "[gpu]" in second.remedy


def test_a_processor_and_its_kernels_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda process: {0, 1}, raising=False)
    monkeypatch.setenv(findings.KERNELS, "1")
    processor = tmp_path / "cpuinfo"
    assert [one.found for one in findings.find_processor(processor)] == ["2 cores"]
    processor.write_text("processor : 0\nflags : fpu avx512f avx512_bf16 sse\n")
    (found,) = findings.find_processor(processor)
    assert found.state == OK and found.found == "2 cores, with bfloat16 multiplication"
    monkeypatch.setenv(findings.KERNELS, "0")
    _, kernels = findings.find_processor(processor)
    assert kernels.state == WARNING and findings.KERNELS in kernels.found


@pytest.mark.parametrize(
    "text, state, found",
    [
        (PEERS.format(one="OK"), OK, "directly"),
        (PEERS.format(one="CNS"), WARNING, "(CNS)"),
        ("", WARNING, "unknown"),
    ],
)
def test_peer_access_is_read_from_the_table(text, state, found):
    finding = findings.peer_access(text)
    assert finding.state == state and found in finding.found
    assert bool(finding.remedy) == (state != OK)


def test_little_room_is_noticed(tmp_path):
    memory = tmp_path / "meminfo"
    memory.write_text("MemTotal: 9 kB\nMemAvailable:   1000000 kB\n")
    assert findings.free_memory(memory) == 1_024_000_000
    assert findings.free_memory(tmp_path / "absent") is None
    room = list(findings.find_room(tmp_path / "runs" / "new", memory))
    assert room[0].state == WARNING and room[0].found == "1.0 GB free" and room[0].remedy
    assert len(room) == 2 and not (tmp_path / "runs").exists()


def test_towers_that_train_differently_are_noticed(monkeypatch):
    right = first_law.weights_after_steps(["/CPU:0"], "cpu")

    def weights(devices, parameters, exchange="packs"):
        if exchange == "nccl":
            raise ValueError("no collective ops: use packs")
        return [weight + 1e-9 * (parameters == "tower0") for weight in right]

    monkeypatch.setattr(first_law, "weights_after_steps", weights)
    found = list(first_law.compare_steps(["/CPU:1", "/CPU:2"]))
    assert states(found) == [OK, WRONG, OK, WARNING]
    assert "more than 1e-12" in found[1].found and found[1].remedy
    assert "use packs" in found[3].remedy


@pytest.mark.slow
def test_this_machine_is_examined(tmp_path, capsys):
    arguments = ["doctor", "--towers", "3", "--run-dir", str(tmp_path), "--json"]
    assert main(arguments) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["findings"]
    laws = [one for one in found if one["what"].startswith("3 towers, parameters")]
    assert [one["state"] for one in laws] == [OK] * 3
    assert [one["state"] for one in found if one["what"] == "3 towers, exchange nccl"] == [OK]
    assert {"Python", "TensorFlow", "copies"} <= {one["what"] for one in found}


def test_towers_that_are_not_there_are_refused(capsys):
    assert main(["doctor", "--gpus", "7"]) == 2
    assert "GPU 7 is not there" in capsys.readouterr().err
