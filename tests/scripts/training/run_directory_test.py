"""A run directory goes on after a kill or a power cut at any moment, and all in it is durable."""

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.file_faults import assert_durable
from tests.programs import exit_code
from tests.scripts.training.beginning import RECORD, TEXT, begin, begin_and_die, begin_and_report
from towers.scripts.main import main
from towers.scripts.training.catalogue import find_recipe, recipe_names, restore_recipe
from towers.scripts.training.run_directory import FIELDS_BEFORE, RunDirectory
from towers.scripts.training.saved_run import check_text


def contents(folder):
    """Returns the bytes of every file below a folder, by its relative path."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize("power_cut", [False, True], ids=["killed", "power cut"])
def test_a_run_begins_again_wherever_it_ended(tmp_path, power_cut):
    begin(tmp_path / "expected" / "run")
    expected = contents(tmp_path / "expected" / "run")
    for last in itertools.count(1):
        path = tmp_path / str(last) / "run"
        path.parent.mkdir()
        code = exit_code(begin_and_die, path, last, power_cut)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        begin(path)
        check_text(path / "text", TEXT)
        found = contents(path)
        assert RunDirectory(path).read()["recipe"] == RECORD["recipe"]
        found["run.json"] = expected["run.json"]  # It knows when, and how often, it was started.
        assert found == expected
    assert last > 9  # A folder, then a file written, fsynced and renamed, its folder fsynced.


def test_all_that_a_run_begins_with_is_durable(tmp_path):
    path = tmp_path / "runs" / "new" / "run"
    (tmp_path / "runs").mkdir()
    assert exit_code(begin_and_report, path, tmp_path / "report.json") == 0
    operations = [tuple(one) for one in json.loads((tmp_path / "report.json").read_text())]
    assert_durable(operations)
    names = {os.path.basename(paths[-1]) for kind, *paths in operations if kind == "rename"}
    assert names == {"run.json", "text.json", "vocabulary.txt"}


def test_what_has_not_changed_is_not_written_again(tmp_path):
    begin(tmp_path / "run")
    files = list((tmp_path / "run" / "text").iterdir())
    before = [written(path) for path in files]
    begin(tmp_path / "run")
    assert [written(path) for path in files] == before


def written(path):
    """Returns a file's number and when it was last written; being read changes neither."""
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns


def test_a_damaged_text_is_completed_by_the_next_start(tmp_path):
    begin(tmp_path / "run")
    expected = contents(tmp_path / "run" / "text")
    (tmp_path / "run" / "text" / "text.json").write_bytes(b"")
    (tmp_path / "run" / "text" / "vocabulary.txt").unlink()
    begin(tmp_path / "run")
    assert contents(tmp_path / "run" / "text") == expected


def test_what_a_killed_process_left_does_not_block(tmp_path):
    (tmp_path / "run").mkdir()
    for name in (".lock", ".run.json.partial"):
        (tmp_path / "run" / name).write_text("{")
    begin(tmp_path / "run")
    (tmp_path / "run" / "text" / ".text.json.partial").write_text("{")
    check_text(tmp_path / "run" / "text", TEXT)
    assert [path.name for path in (tmp_path / "run").glob(".run*")] == []


def test_a_run_from_before_a_field_goes_on_with_what_it_meant(tmp_path, monkeypatch):
    """Without the field all answers were kept, which 0 means."""
    begin(tmp_path / "run")
    directory = RunDirectory(tmp_path / "run")
    (tmp_path / "run" / "checkpoints").mkdir()
    (tmp_path / "run" / "checkpoints" / "step-00000001.ckpt.npz").touch()  # It has saved.

    def now(**new):
        return {**RECORD, "fields": {**RECORD["fields"], **new}}

    with pytest.raises(ValueError, match="max_repeats: absent before, 0 now"):
        directory.find_run(now(max_repeats=0))
    monkeypatch.setitem(FIELDS_BEFORE, RECORD["recipe"], {"max_repeats": 0})
    assert directory.find_run(now(max_repeats=0))["fields"]["max_repeats"] == 0
    with pytest.raises(ValueError, match="max_repeats: 0 before, 9 now"):
        directory.find_run(now(max_repeats=9))
    with pytest.raises(ValueError, match=r"max_repeats: 0 before, \[9, 8\] now"):
        directory.find_run(now(max_repeats=(9, 8)))
    with pytest.raises(ValueError, match=r"before, stories now\. Use") as error:
        directory.find_run({**now(context=1), "recipe": "stories"})
    assert "context" not in str(error.value)


def test_a_run_that_evaluates_the_part_valid_goes_on(tmp_path):
    """The part `validation` was `valid` in version 0.2.0."""
    fields = {**RECORD["fields"], "part": "valid"}
    record = {"starts": [], "data": None, **RECORD, "fields": fields}
    (tmp_path / "run.json").write_text(json.dumps(record))
    assert RunDirectory(tmp_path).read()["fields"]["part"] == "validation"
    assert restore_recipe("stories", {"part": "valid"}).fields.part == "validation"


@pytest.mark.parametrize(
    "about", [3, ["x"], {"pairs": "x"}, {"context": -1}, {"files": 3}, {"kinds": [3]}], ids=str
)
def test_a_record_that_says_of_its_data_what_no_run_writes_is_refused(tmp_path, about):
    record = {"starts": [], "data": None, **RECORD, "about": about}
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(ValueError, match=r"run\.json is damaged \(unexpected about "):
        RunDirectory(tmp_path).read()


def test_a_field_that_is_new_in_a_recipe_has_a_meaning_for_runs_from_before():
    """`recorded_fields.json` lists the fields that every run.json of a release holds."""
    recorded = json.loads((Path(__file__).parent / "recorded_fields.json").read_text())
    for recipe in recipe_names():
        fields = {field.name for field in dataclasses.fields(find_recipe(recipe).fields)}
        new = fields.difference(recorded.get(recipe, fields), FIELDS_BEFORE.get(recipe, ()))
        assert not new, f"{recipe}: what did runs without {sorted(new)} do? FIELDS_BEFORE says it."


def test_files_of_somebody_else_still_block(tmp_path):
    (tmp_path / "run").mkdir()
    for name in (".run.json.swp", ".run.json.partial~", "run.json.partial"):
        (tmp_path / "run" / name).write_text("mine")
        with pytest.raises(ValueError, match="is not empty and holds no run"):
            begin(tmp_path / "run")
        (tmp_path / "run" / name).unlink()


@pytest.mark.parametrize("path", [".", "inner/.."])
def test_a_free_name_is_proposed_beside_a_directory_without_a_name(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert RunDirectory(path).free_name == f"{tmp_path}-2"


def test_commands_that_a_message_names_can_be_pasted(tmp_path):
    directory = RunDirectory(tmp_path / "a b")
    assert directory.typed == f"'{tmp_path / 'a b'}'"
    assert directory.free_name == f"'{tmp_path / 'a b-2'}'"


DYING_COMMAND = """
import sys
from tests.file_faults import Watch
from towers.scripts.main import main
Watch(sys.argv[1], last=sys.argv[2], power_cut=True)
sys.exit(main(sys.argv[3:]))
"""


@pytest.mark.slow
def test_the_same_commands_work_after_power_cuts(tmp_path, capsys):
    run = tmp_path / "run"
    command = ["train", "stories", "--run-dir", str(run), "--steps", "1", "--batch-size", "4"]
    command += ["--set", "hidden_size=4"]
    for published in ("run.json", "vocabulary.txt", "step-00000001.ckpt.npz"):
        dying = [sys.executable, "-c", DYING_COMMAND, str(run), published, *command]
        assert subprocess.run(dying, timeout=600).returncode == -signal.SIGKILL
        assert not list(run.rglob(published))
    assert main(command) == 0
    assert main(["evaluate", str(run)]) == 0
    assert "validation | step 1 |" in capsys.readouterr().out
