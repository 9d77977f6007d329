"""Law 11: wrong input gets a clear message and exit code 2, no traceback, and nothing is lost."""

import gzip
import hashlib
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

from tests.programs import free_addresses
from tests.towers.saving.saved_groups import write_checkpoint
from towers.data.samples import shapes
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.scripts.main import main
from towers.scripts.training.run_directory import RunDirectory
from towers.scripts.wrong_input import WrongInputError, wrong_input

TINY = ["--batch-size", "100", "--set", "filters=2,3", "--set", "hidden_size=4"]


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    """A run of two steps, made once; tests work on copies."""
    path = tmp_path_factory.mktemp("runs") / "shapes"
    assert main(["train", "shapes", "--steps", "2", "--run-dir", str(path), *TINY]) == 0
    return path


@pytest.fixture
def run(finished_run, tmp_path):
    """A copy of the finished run."""
    return shutil.copytree(finished_run, tmp_path / "run")


@pytest.fixture
def idx(tmp_path):
    """A folder with a tiny data set in MNIST's format."""
    folder = tmp_path / "idx"
    folder.mkdir()
    for prefix in ("train", "t10k"):
        images = np.zeros((4, 28, 28), np.uint8)
        header = struct.pack(">iiii", 0x803, *images.shape)
        (folder / f"{prefix}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = struct.pack(">ii", 0x801, 4) + bytes([0, 1, 2, 3])
        (folder / f"{prefix}-labels-idx1-ubyte").write_bytes(labels)
    return folder


@pytest.fixture
def cifar(tmp_path):
    """A folder with the embedded images in CIFAR-10's format, unpacked."""
    folder = tmp_path / "cifar"
    folder.mkdir()
    for path in shapes.folder().glob("*.gz"):
        (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
    return folder


@pytest.fixture
def small_disk(tmp_path):
    """A real file system of 400 kB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "tmpfs", str(mount)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("a small file system can only be mounted as root")
    yield mount
    subprocess.run(["umount", "--lazy", str(mount)], check=True)


def refuse(arguments, capsys, *expected):
    """Runs a command and checks how it refuses."""
    capsys.readouterr()
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as leaving:  # argparse.
        code = leaving.code
    error = capsys.readouterr().err
    assert code == 2, error
    assert "Traceback" not in error
    for text in expected:
        assert text in error
    return error


def train(*arguments):
    return ["train", "shapes", "--steps", "1", *TINY, *arguments]


FLAGS = {
    "no command": ([], "COMMAND"),
    "unknown command": (["trian"], "no command 'trian'. Did you mean 'train'?"),
    "no recipe": (["train"], "RECIPE"),
    "unknown recipe": (["train", "shape"], "Did you mean 'shapes'?"),
    "recipe with a path": (["train", "../main"], "There is no recipe"),
    "unknown flag": (train("--towers", "2", "--nonsense"), "no option --nonsense"),
    "misspelt flag": (train("--towrs=2"), "Did you mean '--towers'? See `towers train --help`."),
    "unexpected argument": (
        train("shapes"),
        "unexpected argument 'shapes'",
        "See `towers train --help`.",
    ),
    "no towers": (train("--towers", "0"), "whole number of at least 1"),
    "half a tower": (train("--towers", "1.5"), "whole number of at least 1"),
    "towers in words": (train("--towers", "two"), "'two'"),
    "run directory not UTF-8": (train("--run-dir", "caf\udce9"), "in UTF-8", r"'caf\udce9'"),
    "export from it": (["export", "runs/caf\udce9"], "in UTF-8", r"'runs/caf\udce9'"),
    "export to it": (["export", "runs/a", "--output", "caf\udce9"], "in UTF-8"),
    "no temperature": (["chat", "none", "--temperature", "0"], "above 0 (--top-k 1 gives"),
    "no warmth of a text": (["generate", "none", "--temperature", "0"], "above 0 (--top-k 1 gives"),
    "empty question": (["chat", "none", "--ask", "hello", " "], "expected a question, not ' '"),
    "absent GPU": (train("--gpus", "0"), "GPU 0 is not there", "no GPU"),
    "GPU in words": (train("--gpus", "first"), "whole numbers such as 0,2"),
    "GPU twice": (train("--gpus", "0,0"), "different numbers"),
    "negative GPU": (train("--gpus=-1"), "different numbers from 0 on"),
    "GPUs and other towers": (train("--gpus", "0,1", "--towers", "3"), "one tower per GPU"),
    "no memory": (train("--gpu-memory", "0"), "number above 0"),
    "virtual without towers": (train("--virtual"), "--towers N"),
    "virtual without a GPU": (train("--virtual", "--towers", "2"), "no GPU"),
    "empty batch": (train("--batch-size", "0"), "whole number of at least 1"),
    "no epochs": (train("--epochs", "0"), "whole number of at least 1"),
    "negative steps": (train("--steps", "-5"), "whole number of at least 1"),
    "unknown precision": (train("--precision", "float8"), "float8", "bfloat16"),
    "unknown placement": (train("--parameters", "gpu"), "tower0"),
    "too long a text": (["generate", "none", "--length", "2147483647"], "at most 100000"),
    "no micro-batch": (train("--accumulate", "0"), "whole number of at least 1"),
    "unknown policy": (train("--batch-norm", "sum"), "mean"),
    "negative seed": (train("--seed", "-1"), "from 0 to 2**32 - 1"),
    "field without value": (train("--set", "epochs"), "FIELD=VALUE"),
    "unknown field": (train("--set", "learning_rat=1"), "Did you mean 'learning_rate'?"),
    "field of another recipe": (train("--set", "depth=20"), "no field 'depth'"),
    "rate in words": (train("--set", "learning_rate=fast"), "takes a number", "'fast'"),
    "negative rate": (train("--set", "learning_rate=-1"), "learning_rate must be above 0"),
    "rate not a number": (train("--set", "learning_rate=nan"), "learning_rate must be above 0"),
    "half a step": (train("--set", "warmup_steps=2.5"), "takes a whole number"),
    "unknown optimizer": (train("--set", "optimizer=adm"), "Did you mean adam"),
    "unknown schedule": (train("--set", "schedule=cosin"), "Did you mean cosine"),
    "too much momentum": (train("--set", "momentum=1"), "momentum must be in [0, 1)"),
    "endless epoch": (train("--set", "boundaries=1,inf"), "boundaries must be from 0 to"),
    "no epoch": (train("--set", "decay_epochs=1e308"), "decay_epochs must be from 0 to"),
    "one address twice": (
        ["launch", "--cluster", "a:1,a:1", "--index", "0", "--", "train", "shapes"],
        "all must differ",
    ),
    "negative clipping": (train("--set", "clip_norm=-1"), "clip_norm must be at least 0"),
    "steps without boundaries": (train("--set", "schedule=piecewise"), "boundary"),
    "one convolution": (train("--set", "filters=20"), "filters"),
    "no exam": (["prepare", "chatbot", "--set", "exam_questions=-1"], "must be above 0"),
    "preparation by chance": (["prepare", "chatbot", "--seed", "1"], "--seed"),
    "few subwords": (
        ["prepare", "chatbot", "--set", "tokenizer=subwords", "--set", "vocabulary_size=7"],
        "vocabulary_size must be at least",
        "Received 7",
    ),
    "download of nothing": (["download", "minst"], "mnist"),
    "benchmark of nothing": (["benchmark", "shapes", "--towers", "0"], "at least 1"),
    "input of no process": (["benchmark", "shapes", "--input", "0"], "--input takes numbers"),
    "unknown exchange": (["benchmark", "shapes", "--exchange", "ncl"], "Did you mean 'nccl'?"),
    "exchange of one tower": (
        ["benchmark", "shapes", "--towers", "1", "--exchange", "nccl"],
        "Received nccl with --towers 1; give at least 2 towers",
    ),
    "benchmark of a step": (["benchmark", "shapes", "--steps", "1"], "--steps must be at least 2"),
    "no Ray worker": (
        ["launch", "--ray", "local", "--workers", "0", "--", "train", "shapes"],
        "expected whole numbers of at least 1, such as 2,4, not '0'",
    ),
    "picture without a name": (["predict", "runs/a", ""], "expected a path, not ''"),
    "runs in a folder without a name": (["runs", ""], "expected a path, not ''"),
    "evaluation of nothing": (["evaluate", "no/such/run"], "holds no run"),
    # What other programs call so, and what beginners type.
    "lr": (train("--lr", "0.1"), "Use --set learning_rate=VALUE"),
    "learning rate": (train("--learning-rate=0.1"), "Use --set learning_rate=VALUE"),
    "learning_rate": (train("--learning_rate", "0.1"), "Use --set learning_rate=VALUE"),
    "optimizer": (train("--optimizer", "sgd"), "Use --set optimizer=VALUE"),
    "hidden size": (train("--hidden-size", "8"), "Use --set hidden_size=VALUE"),
    "dropout": (["train", "chatbot", "--dropout", "0.1"], "Use --set dropout_rate=VALUE"),
    "network": (["train", "images", "--network", "ResNet50"], "Use --set network=VALUE"),
    "model": (["train", "images", "--model", "ResNet50"], "Use --set network=VALUE"),
    "weight decay": (train("--weight-decay", "0.1"), "Use --set optimizer_weight_decay=VALUE"),
    "field of no such recipe": (train("--beam", "3"), "there is no option --beam."),
    "resume": (train("--resume"), "Run the same `towers train` command again"),
    "continue": (train("--continue"), "Run the same `towers train` command again"),
    "gpu": (train("--gpu=0"), "Use --gpus"),
    "number of GPUs": (train("--num-gpus", "2"), "Use --towers"),
    "half precision": (train("--fp16"), "Use --precision"),
    "number format": (train("--dtype", "float16"), "Use --precision"),
    "threads": (train("--num-workers", "4"), "One thread per core reads"),
    "field without a flag": (train("learning_rate=1"), "Use --set learning_rate=VALUE"),
    "patience": (train("--patience", "3"), "Use --early-stopping"),
    "save_every": (train("--save-every", "3"), "Use --checkpoint-every"),
    "output folder": (train("--output-dir", "out"), "Use --run-dir"),
    "data set": (train("--dataset", "data"), "Use --data"),
    "epochs in capitals": (train("--Epochs", "3"), "Did you mean '--epochs'?"),
    "underlined flag": (train("--batch_size", "3"), "Use --batch-size."),
    "single dash": (train("-epochs", "3"), "Use --epochs."),
    "flag of before": (["launch", "--nnodes", "2", "--", "train", "shapes"], "--ray ADDRESS"),
    "comparison of one": (["compare", "runs/a"], "takes two or more run directories"),
    "help of nothing": (["help", "trian"], "no command 'trian'. Did you mean 'train'?"),
    "recipe as a command": (["shapes"], "Use `towers train shapes`."),
    "train by another name": (["resume", "runs/a"], "Use `towers train`."),
    "evaluate by another name": (["test", "runs/a"], "Use `towers evaluate`."),
    "version": (["version"], "Use `towers --version`."),
    "version by a letter": (["-v"], "Use `towers --version`."),
    "option before the command": (["--towers", "2", "train"], "The command comes first"),
    "field by another name": (train("--set", "lr=1"), "no field 'lr'. Use learning_rate="),
    "option as a field": (train("--set", "early_stopping=3"), "Use --early-stopping."),
    "field and value apart": (
        train("--set", "epochs", "2"),
        "such as learning_rate=0.1",
        "'epochs'",
    ),
    "options without a near one": (["devices", "--xyz"], "There are: --help, --help-all, --json."),
    "other kinds of exports": (
        ["export", "runs/a", "--format", "torch"],
        "expected saved_model, litert or onnx, not 'torch'",
    ),
    "kind of an export": (["export", "runs/a", "--kind", "onnx"], "Use --format."),
    "recipe and run": (["train", "runs/shapes"], "There is no recipe 'runs/shapes'"),
    "run of a recipe's name": (["chat", "chatbot"], "no run.json in it. `towers runs` lists"),
    "chat without a run": (["chat"], "RUN_DIR; `towers runs` lists them."),
    "nothing to prepare": (["prepare"], "RECIPE; `towers recipes` lists them."),
    "removal of a run": (
        ["runs", "delete", "runs/a"],
        "move or remove a run like any folder",
    ),
    "name in capitals": (["download", "MNIST"], "Received 'MNIST'. Did you mean mnist?"),
    "list that does not end": (train("--set", "filters=[4,6"), "takes values such as 1,2"),
    "words in a list": (train("--set", "filters=[a,b]"), "takes values such as 1,2"),
    "blanks around": (["train", "shapes", "--set", "epochs = x"], "takes a whole number"),
    "switch in words": (["train", "chatbot", "--set", "lowercase=yes"], "takes true or false"),
    "language in words": (["train", "chatbot", "--language", "chinese"], "'chinese'"),
    "token on the line": (["serve", "runs/zh", "--token", "abc"], "Use --token-file"),
    "question without a flag": (["chat", "runs/zh", "hello"], "unexpected argument 'hello'"),
    "beams": (["chat", "runs/zh", "--beam-size", "3"], "Use --beam"),
    "most tokens": (["generate", "runs/s", "--max-new-tokens", "3"], "Use --length"),
    "pictures of nowhere": (["train", "images", "--data", "no/such"], "no/such"),
    "texts of nowhere": (["train", "language_model", "--data", "no/such"], "no/such"),
}


@pytest.mark.parametrize("name", FLAGS)
def test_wrong_flag_is_refused(name, capsys, tmp_path, monkeypatch):
    arguments, *expected = FLAGS[name]
    monkeypatch.chdir(tmp_path)
    refuse(arguments, capsys, *expected)
    assert not list(tmp_path.rglob("run.json")), "a refused run would stand in the next one's way"


def test_text_that_cannot_be_written_is_told_from_text_that_cannot_be_read():
    for convert, expected in [
        (lambda: "caf\udce9".encode(), r"'caf\udce9' has characters that utf-8 cannot hold"),
        (lambda: b"caf\xe9".decode(), "Expected text in UTF-8, found"),
    ]:
        with pytest.raises(WrongInputError) as raised, wrong_input():
            convert()
        assert expected in str(raised.value)


def cut(path):
    path.write_bytes(path.read_bytes()[:-7])


def replace_start(path):
    path.write_bytes(b"\x00\x00\x0d\x01" + path.read_bytes()[4:])


def set_label(path, label):
    content = bytearray(path.read_bytes())
    content[-1 if "labels" in path.name else 3073] = label
    path.write_bytes(bytes(content))


IDX_FILES = {
    "missing file": ("t10k-labels-idx1-ubyte", os.remove, "towers download"),
    "cut file": ("train-images-idx3-ubyte", cut, "expected"),
    "other magic": ("train-labels-idx1-ubyte", replace_start, "expected"),
    "label out of range": ("t10k-labels-idx1-ubyte", lambda path: set_label(path, 10), "10"),
    "empty file": ("train-images-idx3-ubyte", lambda path: path.write_bytes(b""), "expected"),
}


@pytest.mark.parametrize("name", IDX_FILES)
def test_wrong_idx_file_is_refused(name, idx, capsys, tmp_path):
    file, spoil, expected = IDX_FILES[name]
    spoil(idx / file)
    command = ["train", "mnist", "--data", idx, "--run-dir", tmp_path / "run", "--steps", "1"]
    refuse(command, capsys, file.partition("-idx")[0], expected)
    assert not (tmp_path / "run").exists()


def test_text_with_the_name_of_a_gzip_file_is_refused(idx, capsys, tmp_path):
    (idx / "train-images-idx3-ubyte").rename(idx / "train-images-idx3-ubyte.gz")
    refuse(["train", "mnist", "--data", idx], capsys, "train-images-idx3-ubyte.gz")


CIFAR_FILES = {
    "missing file": ("test_batch.bin", os.remove, "test_batch.bin"),
    "cut file": ("data_batch_1.bin", cut, "3073"),
    "label out of range": ("data_batch_1.bin", lambda path: set_label(path, 77), "77"),
}


@pytest.mark.parametrize("name", CIFAR_FILES)
def test_wrong_cifar_file_is_refused(name, cifar, capsys, tmp_path):
    file, spoil, expected = CIFAR_FILES[name]
    spoil(cifar / file)
    refuse(train("--data", cifar, "--run-dir", tmp_path / "run"), capsys, file, expected)


def test_depth_that_no_resnet_has_is_refused(cifar, capsys):
    command = ["train", "cifar10_resnet", "--data", cifar, "--set", "depth=21"]
    refuse(command, capsys, "21", "20")


@pytest.mark.parametrize("kind", ["missing", "a file", "empty"])
def test_wrong_data_folder_is_refused(kind, capsys, tmp_path):
    folder = tmp_path / "data"
    if kind == "a file":
        folder.write_text("not a folder")
    elif kind == "empty":
        folder.mkdir()
    refuse(["train", "fashion_mnist", "--data", folder], capsys, str(folder))


def digests(path):
    return {
        file.relative_to(path): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def other_run(run, *arguments):
    return ["train", "shapes", "--steps", "4", "--run-dir", str(run), *TINY, *arguments]


OTHER_SETTINGS = {
    "other seed": (["--seed", "5"], "seed: 0 before, 5 now"),
    "other size": (["--set", "hidden_size=5"], "hidden_size: 4 before, 5 now"),
    "other batch": (["--batch-size", "50"], "batch_size: 100 before, 50 now"),
    "other precision": (["--precision", "bfloat16"], "precision: float32 before, bfloat16 now"),
    "other updates": (["--updates", "async"], "updates: sync before, async now"),
    "two of them": (["--seed", "5", "--set", "momentum=0.5"], "momentum: 0.9 before, 0.5 now"),
}


@pytest.mark.parametrize("name", OTHER_SETTINGS)
def test_run_refuses_other_settings_and_says_which(name, run, capsys):
    arguments, expected = OTHER_SETTINGS[name]
    before = digests(run)
    refuse(other_run(run, *arguments), capsys, expected, "--run-dir")
    assert digests(run) == before


def test_a_run_keeps_the_settings_that_are_not_given_again(run, capsys):
    before = RunDirectory(run).read()
    assert before["fields"]["hidden_size"] == 4
    assert main(["train", "shapes", "--steps", "4", "--run-dir", str(run)]) == 0
    assert re.search(
        r"continues at step 2 .*, with its own .*hidden_size=4", capsys.readouterr().out
    )
    after = RunDirectory(run).read()
    assert after["fields"] == before["fields"]
    assert len(after["starts"]) == 2
    record = {**after, "fields": {**after["fields"], "hidden_size": "x"}}
    (run / "run.json").write_text(json.dumps(record))
    refuse(["train", "shapes", "--run-dir", str(run)], capsys, "run.json: Field hidden_size takes")


def test_a_run_that_saved_nothing_gives_way_to_other_settings(run, capsys):
    shutil.rmtree(run / "checkpoints")
    assert (
        main(["train", "shapes", "--steps", "1", "--run-dir", str(run), "--batch-size", "99"]) == 0
    )
    assert RunDirectory(run).read()["fields"]["hidden_size"] != 4


def test_run_refuses_other_images(run, cifar, capsys):
    before = digests(run)
    path = cifar / "test_batch.bin"
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    for expected in (
        "the content of the data",
        "if the data grew)",
    ):
        refuse(other_run(run, "--data", str(cifar)), capsys, expected)
    assert digests(run) == before


def test_run_refuses_another_recipe(run, idx, capsys):
    before = digests(run)
    command = ["train", "mnist", "--data", idx, "--run-dir", run]
    refuse(command, capsys, "recipe: shapes before, mnist now")
    assert digests(run) == before


@pytest.fixture
def old_run(run):
    """A run whose checkpoint does not say what ran, as those of older versions."""
    checkpoint = CheckpointFolder(run / "checkpoints").latest()
    state = {name: value for name, value in checkpoint.state.items() if name != "run"}
    write_checkpoint(checkpoint.path, checkpoint.step, {}, state)
    return run


def test_damaged_record_is_refused(old_run, capsys):
    run = old_run
    (run / "run.json").write_text('{"recipe": "shapes"')
    refuse(other_run(run), capsys, "run.json is damaged")


@pytest.mark.parametrize("entry", ["data", "fields"])
def test_record_without_an_entry_is_refused(entry, old_run, capsys):
    run = old_run
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, entry: {}} if entry == "fields" else {
        key: value for key, value in record.items() if key != entry
    }))  # fmt: skip
    refuse(["evaluate", run], capsys, "run.json is damaged")


def test_record_of_something_else_is_refused(old_run, capsys):
    run = old_run
    (run / "run.json").write_text(json.dumps([1, 2]))
    refuse(["evaluate", run], capsys, "run.json is damaged")


def test_checkpoints_that_are_all_damaged_are_refused(run, capsys):
    files = list((run / "checkpoints").iterdir())
    for file in files:
        cut(file)
    before = digests(run)
    refuse(other_run(run), capsys, "checkpoint")
    after = digests(run)
    assert {path: after[path] for path in before if "checkpoints" in str(path)} == {
        path: before[path] for path in before if "checkpoints" in str(path)
    }


def test_evaluation_without_a_checkpoint_is_refused(run, capsys):
    shutil.rmtree(run / "checkpoints")
    refuse(["evaluate", run], capsys, "no checkpoint yet")


def test_run_directory_that_is_a_file_is_refused(capsys, tmp_path):
    path = tmp_path / "run"
    path.write_text("mine")
    refuse(train("--run-dir", path), capsys, "is a file")
    assert path.read_text() == "mine"


def test_directory_of_somebody_else_is_refused(capsys, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    refuse(train("--run-dir", tmp_path), capsys, "thesis.tex")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.tex"]


def test_directory_that_cannot_be_made_is_refused(capsys):
    if not pathlib.Path("/sys").is_dir():
        pytest.skip("this system has no /sys, where nobody may make a directory")
    refuse(train("--run-dir", "/sys/towers-run"), capsys, "/sys/towers-run cannot be made")


def test_full_disk_is_a_clear_error(small_disk, capsys):
    big = ["train", "shapes", "--steps", "3", "--batch-size", "100", "--checkpoint-every", "1"]
    error = refuse([*big, "--run-dir", small_disk / "run"], capsys, "checkpoints")
    assert "space" in error
    assert not list(small_disk.rglob("*.partial"))


def test_a_disk_with_room_for_one_checkpoint_ends_a_run(small_disk, capsys):
    short = ["train", "shapes", "--steps", "3", "--run-dir", str(small_disk / "run")]
    size = ["--set", "filters=2,3", "--set", "hidden_size=200"]
    for _ in range(2):  # Evaluated, and told, again.
        with pytest.warns(RuntimeWarning, match=r"Step 3 is saved, but .* Make room"):
            assert main([*short, *size]) == 0
        assert capsys.readouterr().out.count("test  | step 3 ") == 1
    assert main(["runs", str(small_disk)]) == 0
    assert "finished" in capsys.readouterr().out


def test_full_disk_loses_no_checkpoint(small_disk, finished_run, capsys):
    run = shutil.copytree(finished_run, small_disk / "run")
    kept = digests(run / "checkpoints")
    (small_disk / "ballast").write_bytes(b"x" * (os.statvfs(small_disk).f_bavail * 4096))
    refuse(other_run(run), capsys)
    assert digests(run / "checkpoints") == kept


@pytest.mark.parametrize("share", [0.2, 0.7], ids=["model", "weights"])
def test_export_to_a_full_disk_is_a_clear_error(small_disk, run, capsys, tmp_path, share):
    assert main(["export", str(run), "--output", str(tmp_path / "whole")]) == 0
    size = sum(path.stat().st_size for path in (tmp_path / "whole").rglob("*"))
    room = os.statvfs(small_disk).f_bavail * 4096 - int(share * size)
    (small_disk / "ballast").write_bytes(b"x" * room)
    error = refuse(["export", run, "--output", small_disk / "export"], capsys)
    assert error == (
        "towers: error: No space left on device, where this command writes its output. Make room, "
        "and run the same command again.\n"
    )
    assert os.listdir(small_disk) == ["ballast"]


def test_download_from_nowhere_is_a_clear_error(capsys, tmp_path):
    url = f"http://{free_addresses(1)[0]}/"
    refuse(["download", "mnist", "--data", tmp_path, "--url", url], capsys, url)
