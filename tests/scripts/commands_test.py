"""Every command does on real files what its help says."""

import contextlib
import dataclasses
import gzip
import http.server
import io
import json
import math
import os
import subprocess
import sys
import threading

import pytest

from tests.curves import read_scalars
from tests.paths import CORPORA, ROOT, missing
from towers.data.samples import shapes
from towers.scripts.main import COMMANDS, main
from towers.scripts.options.setting import meanings_of, settings_of
from towers.scripts.training import recipe
from towers.scripts.training.catalogue import find_recipe, recipe_names, restore_recipe
from towers.scripts.training.run_directory import different_fields

TINY = ["--batch-size", "100", "--set", "filters=2,3", "--set", "hidden_size=4"]
FASHION_MNIST = CORPORA / "fashion_mnist"


def train(run_dir, *arguments):
    return main(["train", "shapes", "--run-dir", str(run_dir), *TINY, *arguments])


def last_object(capsys):
    last = capsys.readouterr().out.splitlines()[-1]
    return json.loads(last, parse_constant=pytest.fail)  # NaN and Infinity are no JSON.


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    output = capsys.readouterr().out
    for command, summary in COMMANDS.items():
        assert command in output and " ".join(summary.split()[:3]) in output


def test_command_prints_no_notices_of_tensorflow_and_no_traceback(tmp_path):
    command = [sys.executable, "-m", "towers.scripts.main", "train", "shapes", "--towers", "2"]
    command += ["--steps", "1", "--run-dir", str(tmp_path / "run"), *TINY]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0
    assert result.stderr == ""
    assert result.stdout.startswith("shapes: 2 towers on virtual CPUs")
    command = [sys.executable, "-m", "towers.scripts.main", "train", "shapez"]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2
    assert refused.stderr.startswith("towers: error: ") and refused.stderr.count("\n") == 1


def test_a_short_training_reports_at_its_end(tmp_path, capsys):
    assert train(tmp_path / "run", "--steps", "3", "--towers", "2") == 0
    assert "train | step 3 | " in capsys.readouterr().out
    for tower in ("tower_0", "tower_1", "average"):
        assert [
            step for step, _ in read_scalars(tmp_path / "run" / "summaries", tower)["loss"]
        ] == [3]


PRINTING = """
import sys
from towers.scripts.shown import show
from towers.scripts import main
from towers.scripts.commands import recipes
def run(options: recipes.RecipesOptions) -> int:
    return show("\u4e2d") or 0
recipes.run = run
sys.argv[1:] = ["recipes", *sys.argv[1:]]
sys.exit(main.main())
"""
FULL = "No space left on device, where this command writes its output. Make room"


@pytest.mark.parametrize(
    ("redirect", "code", "shown"),
    [("", 0, "\\u4e2d"), (">&-", 0, ""), (">/dev/full", 1, FULL), ("--help >/dev/full", 1, FULL)],
    ids=["ascii", "closed", "full", "help"],
)
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["buffered", "unbuffered"])
def test_no_output_is_a_bug(redirect, code, shown, unbuffered, tmp_path):
    (tmp_path / "a.py").write_text(PRINTING)
    result = subprocess.run(
        ["bash", "-c", f"{sys.executable} {tmp_path / 'a.py'} {redirect}"],
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": unbuffered},
        capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert result.returncode == code
    printed = result.stdout + result.stderr
    assert shown in printed and "Traceback" not in printed and "bug" not in printed


def test_a_closed_input_is_an_empty_one():
    script = "import sys; from towers.scripts.main import prepare_streams; prepare_streams()"
    command = f"{sys.executable} -c '{script}; print(sys.stdin.read() + str(3))' <&-"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert (result.stdout, result.stderr) == ("3\n", "")


def test_recipes_are_listed_with_what_they_train(capsys):
    assert main(["recipes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [line.split()[0] for line in lines]
    assert names == sorted(names) and {"chatbot", "cifar10", "mnist", "shapes"} <= set(names)
    assert all(len(line.split()) > 3 for line in lines)


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_shows_every_field_with_its_meaning(name, capsys):
    assert main(["recipes", name]) == 0
    output = capsys.readouterr().out.replace("\n" + " " * 6, " ")  # Long lines are wrapped.
    fields = find_recipe(name).fields
    for field in dataclasses.fields(fields):
        (line,) = [line for line in output.splitlines() if line.startswith(f"  {field.name}=")]
        assert len(line.split()) > 3
        assert all(bound.text in line for bound in settings_of(type(fields))[field.name].bounds)


@pytest.mark.parametrize("name", recipe_names())
def test_recipe_has_the_name_of_its_module_and_fields_within_their_bounds(name):
    assert restore_recipe(name, {}) == find_recipe(name)
    assert find_recipe(name).name == name


def test_meanings_of_more_than_one_line_are_whole():
    @dataclasses.dataclass
    class Example:
        """Some fields.

        Attributes:
            first: begins here, ends
                there, with: colons.
            second: short.

        Not a meaning.
        """

        first: int = 0
        second: int = 0

    assert meanings_of(Example) == {
        "first": "begins here, ends there, with: colons.",
        "second": "short.",
    }


def test_devices_are_listed(capsys):
    assert main(["devices", "--json"]) == 0
    assert last_object(capsys)["CPU"][0]["number"] == 0


@pytest.fixture(scope="module")
def on_three_towers(tmp_path_factory):
    """A run of four steps on three towers, whose last one saves and only then evaluates."""
    run_dir = tmp_path_factory.mktemp("trained") / "run"
    options = ["--steps", "4", "--checkpoint-every", "4", "--evaluate-every", "1000"]
    assert train(run_dir, *options, "--towers", "3") == 0
    return run_dir


@pytest.mark.parametrize(
    "options",
    [
        ["--towers", "4", "--batch-size", "7"],
        *(pytest.param(["--towers", number], marks=pytest.mark.slow) for number in "13"),
    ],
    ids=" ".join,
)
def test_evaluation_reports_what_the_training_saw_by_any_towers_and_batch(
    options, on_three_towers, capsys
):
    evaluate = ["evaluate", str(on_three_towers), "--json", "--checkpoint", "latest"]
    assert main([*evaluate, *options]) == 0
    report = last_object(capsys)
    assert report["examples"] == 500 and report["step"] == 4
    for name, points in read_scalars(on_three_towers / "summaries", "evaluation").items():
        if name in ("loss", "accuracy"):
            assert points[-1][0] == 4
            assert report[name] == pytest.approx(points[-1][1], rel=1e-5)


ENGINES = {
    "float16, accumulated on tower 0, clipped adagrad with a scaled rate": [
        *("--precision", "float16", "--towers", "2"),
        *("--accumulate", "3", "--parameters", "tower0"),
        *("--set", "optimizer=adagrad", "--set", "clip_norm=1"),
        *("--set", "base_batch_size=50", "--set", "schedule=exponential"),
    ],
    "bfloat16": ["--precision", "bfloat16", "--towers", "2"],
    "xla, piecewise nesterov with warm-up": [
        *("--xla", "--set", "optimizer=nesterov", "--set", "warmup_steps=5"),
        *("--set", "schedule=piecewise", "--set", "boundaries=1,2"),
    ],
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * ("float16," not in name)) for name in ENGINES],
)
def test_every_way_to_run_the_engine_trains_and_evaluates(name, tmp_path, capsys):
    run_dir = tmp_path / "run"
    assert train(run_dir, "--steps", "4", *ENGINES[name]) == 0
    assert main(["evaluate", str(run_dir), "--json"]) == 0
    assert last_object(capsys)["step"] == 4


@pytest.fixture(scope="module")
def started_twice(tmp_path_factory):
    """A run on two towers that is called once more on one; what the first start printed."""
    run_dir, first = tmp_path_factory.mktemp("twice") / "run", io.StringIO()
    with contextlib.redirect_stdout(first):
        assert train(run_dir, "--steps", "2", "--towers", "2", "--log-placement") == 0
    assert train(run_dir, "--steps", "3") == 0
    return run_dir, first.getvalue()


def test_placement_is_printed(started_twice):
    lines = started_twice[1].splitlines()
    assert any("ReadVariableOp" in line for line in lines if line.startswith("CPU:0"))
    for tower in ("CPU:1", "CPU:2"):
        assert any("MatMul" in line for line in lines if line.startswith(tower))


@pytest.mark.parametrize("steps", [2, 3])
def test_a_run_that_has_all_that_is_asked_for_stays_as_it_is(steps, started_twice, capsys):
    path, before = started_twice[0], contents(started_twice[0])
    assert train(path, "--steps", str(steps), "--log-placement") == 0
    assert f"{path} has 3 steps and stays as it is" in capsys.readouterr().out
    assert contents(path) == before


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_training_stops_early_and_keeps_the_best(tmp_path, capsys):
    options = ["--epochs", "50", "--early-stopping", "2", "--evaluate-every", "3"]
    options += ["--set", "validation_share=0.1"]
    assert train(tmp_path / "run", *options, "--set", "learning_rate=1e-30") == 0
    output = capsys.readouterr().out
    assert "has not improved for 2 evaluations" in output
    assert main(["evaluate", str(tmp_path / "run"), "--json", "--checkpoint", "best"]) == 0
    assert last_object(capsys)["step"] == 3
    assert train(tmp_path / "run", *options, "--set", "learning_rate=1e-30") == 0
    output = capsys.readouterr().out
    assert "run stays as it is: " in output and "for 2 evaluations" in output


def test_run_directory_records_what_ran(started_twice):
    record = json.loads((started_twice[0] / "run.json").read_text())
    assert record["recipe"] == "shapes" and record["fields"]["filters"] == [2, 3]
    first, second = record["starts"]
    assert first["devices"] == ["/CPU:1", "/CPU:2"] and second["devices"] == ["/CPU:0"]
    assert first["versions"]["tensorflow"].startswith("2.")


def test_diverged_training_names_the_tower_and_the_step(tmp_path, capsys):
    options = ["--epochs", "3", "--set", "optimizer=sgd", "--set", "learning_rate=1e30"]
    with pytest.warns(RuntimeWarning, match="learning rate of 1e\\+30 is far above"):
        assert train(tmp_path / "run", "--towers", "2", *options) == 1
    error = capsys.readouterr().err
    assert "not finite at step" in error and "tower" in error


@pytest.mark.slow
def test_download_gets_a_data_set_over_http_and_training_reads_it(tmp_path, capsys, monkeypatch):
    if not FASHION_MNIST.is_dir():
        pytest.skip(missing("fashion_mnist"))

    def handler(*arguments):
        return http.server.SimpleHTTPRequestHandler(*arguments, directory=str(FASHION_MNIST))

    monkeypatch.setattr(
        http.server.SimpleHTTPRequestHandler, "log_message", lambda *arguments: None
    )
    monkeypatch.chdir(tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        assert main(["download", "fashion_mnist", "--url", url]) == 0
        server.shutdown()
    assert main(["train", "fashion_mnist", "--steps", "2", "--towers", "2"]) == 0
    assert "10000 examples" in capsys.readouterr().out


@pytest.mark.slow
def test_cifar10_recipes_train_on_the_published_format(tmp_path):
    for path in shapes.folder().glob("*.gz"):
        (tmp_path / path.stem).write_bytes(gzip.decompress(path.read_bytes())[: 3073 * 40])
    for name, fields in {
        "cifar10": [],
        "cifar10_tutorial": [],
        "cifar10_resnet": ["--set", "depth=8"],
    }.items():
        command = ["train", name, "--data", str(tmp_path), "--run-dir", str(tmp_path / name)]
        assert main([*command, "--steps", "2", "--batch-size", "20", *fields]) == 0


@pytest.mark.parametrize(
    "network",  # The recipe `shapes` trains a lenet too.
    [
        "softmax",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("mlp", "lenet", "resnet")),
    ],
)
def test_mnist_networks_train(network, tmp_path):
    if not FASHION_MNIST.is_dir():
        pytest.skip(missing("fashion_mnist"))
    command = ["train", "mnist", "--data", str(FASHION_MNIST), "--run-dir", str(tmp_path / "run")]
    assert main([*command, "--steps", "2", "--set", f"network={network}"]) == 0


def test_benchmark_prints_every_number_of_towers_with_its_ratio(capsys):
    command = ["benchmark", "shapes", "--towers", "1,2", *TINY, "--repetitions", "2"]
    assert main([*command, "--steps", "3", "--json"]) == 0
    rows = last_object(capsys)["results"]
    assert [row["name"] for row in rows] == ["towers 1", "towers 2"]
    assert rows[0]["time_ratio"] == 1
    for row in rows:
        assert row["milliseconds"] > 0
        assert row["examples_per_second"] == pytest.approx(100_000 / row["milliseconds"])


@pytest.mark.slow
def test_benchmark_times_every_exchange_beside_the_towers(capsys):
    command = ["benchmark", "shapes", "--towers", "2", "--exchange", "packs,nccl", "--json"]
    assert main([*command, "--repetitions", "1", "--steps", "2", *TINY]) == 0
    rows = last_object(capsys)["results"]
    assert [row["name"] for row in rows] == ["towers 2", "packs 2", "nccl 2"]
    assert all(row["milliseconds"] > 0 for row in rows)


def test_benchmark_of_the_input_has_a_row_for_each_number_of_processes(capsys):
    command = ["benchmark", "shapes", "--input", "1,3", "--repetitions", "1", "--steps", "4"]
    assert main([*command, "--batch-size", "20", "--json"]) == 0
    rows = last_object(capsys)["results"]
    assert [(row["processes"], row["batch_size"]) for row in rows] == [(1, 20), (3, 60)]
    for row in rows:
        assert min(row[name] for name in row if name.endswith("milliseconds")) > 0


@pytest.mark.slow
def test_what_tensorflow_cannot_do_is_said_in_one_line(tmp_path, capsys):
    assert train(tmp_path / "run", "--steps", "1", "--set", "hidden_size=1000000000000") == 1
    assert "towers: error: " in capsys.readouterr().err


def test_a_perplexity_too_large_to_tell_is_infinite():
    assert recipe.perplexity(0.0) == 1 and recipe.perplexity(1e9) == math.inf


def test_fields_of_before_may_be_whole_numbers():
    assert not different_fields({"boundaries": [4, 5]}, {"boundaries": (4.0, 5.0)})
    assert different_fields({"boundaries": [4, 5]}, {"boundaries": (4.0, 6.0)})
