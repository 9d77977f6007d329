"""The chatbot from a corpus to a conversation: prepare, train, evaluate, chat, export."""

import contextlib
import functools
import io
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.paths import ROOT
from tests.programs import PATIENCE, TOWERS, finish, started
from towers.saving.checkpoint_folder import CheckpointFolder
from towers.scripts.commands.export import NAMES
from towers.scripts.main import main, prepare_streams
from towers.scripts.training.run_directory import RunDirectory

TINY = ["--set", "embedding_size=8", "--set", "hidden_size=8", "--batch-size", "32"]
SHARE = ["--set", "held_out=0.1"]
NO_DROPOUT = ["--set", "dropout_rate=0"]
QUESTIONS = "What is two plus three?\n\nMy name is Anna.\tHello Anna.\tWho am I?\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder of its own for the caches and the runs of this file."""
    return tmp_path_factory.mktemp("chatbot")


@pytest.fixture(autouse=True)
def work_in(folder, monkeypatch):
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def corpus(folder):
    """A small corpus in TSV: the answer to `say X` is X, in two ways."""
    words = [f"w{a}{b}" for a in "abcdefgh" for b in "ijklmnop"]
    lines = [f"please say {word}\tof course : {word} ." for word in words]
    lines += [f"repeat {word} twice\t{word} {word} ." for word in words]
    path = folder / "corpus.tsv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run_dir(folder, corpus):
    """A run of a few steps on the corpus."""
    before = pathlib.Path.cwd()
    os.chdir(folder)
    try:
        assert train("run", "--data", str(corpus), "--steps", "6") == 0
    finally:
        os.chdir(before)
    return folder / "run"


def train(run, *arguments):
    return main(["train", "chatbot", "--language", "en", "--run-dir", str(run), "--towers", "2",
                 *TINY, *SHARE, *arguments])  # fmt: skip


def ask(run_dir, *arguments, questions=QUESTIONS):
    """Returns the lines that `towers chat --stdin` prints."""
    before, sys.stdin = sys.stdin, io.StringIO(questions)
    try:
        with contextlib.redirect_stdout(io.StringIO()) as output:
            assert main(["chat", str(run_dir), "--stdin", *arguments]) == 0
    finally:
        sys.stdin = before
    return output.getvalue().split("\n")[:-1]


@pytest.fixture(scope="module")
def answers_of(run_dir):
    """Returns what the run answers with these options; each is asked once."""
    return functools.cache(functools.partial(ask, run_dir))


@pytest.mark.slow
def test_lines_have_random_numbers_of_their_own_and_only_the_context(run_dir):
    """The first line holds one turn more than the context, which is nobody's business."""
    lines = "so it was\thi\tyes\tno\n" + "hi\tyes\tno\n" * 5
    sampled = ask(run_dir, "--temperature", "5", questions=lines)
    assert len(set(sampled)) > 1
    assert len(set(ask(run_dir, questions=lines))) == 1


def test_prepare_says_what_it_found_once(corpus, capsys, folder):
    fresh = folder / "fresh.tsv"
    fresh.write_text(corpus.read_text() + "a line without an answer\n\t\n")
    command = ["prepare", "chatbot", "--language", "en", "--data", str(fresh), "--processes", "1"]
    assert main(command) == 0
    first = capsys.readouterr().out
    assert "pairs to train on" in first and "skipped" in first and "prepared in" in first
    assert len(set(first.splitlines())) == len(first.splitlines())
    cache = pathlib.Path(first.splitlines()[-1].removeprefix("prepared in "))
    written = (cache / "manifest.json").stat().st_mtime_ns
    assert main(command) == 0
    assert capsys.readouterr().out == first
    assert (cache / "manifest.json").stat().st_mtime_ns == written


@pytest.mark.slow
def test_answers_that_are_all_the_same_bring_a_warning(corpus, capsys, folder):
    """A corpus whose answers are all alike teaches just that."""
    stock = folder / "stock.tsv"
    questions = [line.partition("\t")[0] for line in corpus.read_text().splitlines()]
    stock.write_text("".join(f"{question}\tok\n" for question in questions))
    quick = ["--set", "learning_rate=0.02", "--set", "warmup_steps=1"]
    quick += ["--steps", "60", "--evaluate-every", "60"]
    assert train("stock", "--data", str(stock), *quick) == 0
    output = capsys.readouterr().out
    assert " -> " in output
    assert "warning: all 13 questions got the answer 'ok" in output


def test_evaluate_gives_the_metrics_of_answers_whatever_the_number_of_towers(run_dir, capsys):
    metrics, others = (evaluate(run_dir, capsys, "--towers", towers) for towers in ("1", "3"))
    np.testing.assert_allclose(metrics["loss"], others["loss"], rtol=1e-6)
    assert metrics["step"] == 6
    np.testing.assert_allclose(metrics["perplexity"], np.exp(metrics["loss"]), rtol=1e-6)
    assert 1 < metrics["character_perplexity"] < metrics["perplexity"]
    assert metrics["unigram_perplexity"] > 1
    for name in ("bleu", "distinct_1", "distinct_2", "exact_match", "empty_rate", "unknown_rate"):
        assert metrics[name] >= 0
    assert 0 <= metrics["hits_1_10"] <= 1
    assert metrics["hits_1_10"] == others["hits_1_10"]
    assert 0 < metrics["commonest"] <= metrics["top_ten"] <= 1
    assert min(metrics["entropy_1"], metrics["entropy_2"]) >= 0
    assert metrics["asked"] >= 1


def test_an_evaluation_tells_of_a_corpus_that_has_changed_since_the_training(
    run_dir, corpus, capsys
):
    before = corpus.read_text()
    corpus.write_text(before.replace("of course", "course of", 1))  # The same vocabulary.
    try:
        with pytest.warns(RuntimeWarning, match="no longer what the run was trained with"):
            evaluate(run_dir, capsys)
    finally:
        corpus.write_text(before)


def evaluate(run_dir, capsys, *options):
    assert main(["evaluate", str(run_dir), "--json", *options]) == 0
    return json.loads(capsys.readouterr().out.splitlines()[-1])


@pytest.mark.parametrize("options", [(), ("--beam", "3", "--nbest", "2")], ids=str)
def test_chat_answers_a_line_with_a_line(answers_of, options):
    answers = answers_of(*options)
    assert len(answers) == 3
    assert answers[1] == ""
    assert len(answers[0].split("\t")) == (2 if options else 1)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_samples(run_dir, capsys):
    question = ["--ask", "What is two plus three?", "--top-p", "0.9", "--nbest", "2"]
    outputs = []
    for seed in ("1", "1", "2"):
        assert main(["chat", str(run_dir), *question, "--seed", seed]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] != outputs[2]


def test_asked_questions_are_one_conversation(run_dir, capsys):
    assert main(["chat", str(run_dir), "--ask", "repeat wai twice", "please say wbj", "/new"]) == 0
    lines = capsys.readouterr().out.splitlines()
    talk = lines[2:]
    assert [line[:5] for line in talk[:-1]] == ["you> ", "bot> ", "you> ", "bot> ", "you> "]
    assert talk[2] == "you> please say wbj"
    assert talk[-1] == "The earlier turns are forgotten."


def test_all_questions_are_asked_whatever_words_they_are(run_dir, capsys):
    assert main(["chat", str(run_dir), "--ask", "bye", "QUIT", "help", "/quit", "hello"]) == 0
    lines = capsys.readouterr().out.splitlines()
    asked = [line[5:] for line in lines if line.startswith("you> ")]
    assert asked == ["bye", "QUIT", "help", "/quit"]
    assert len([line for line in lines if line.startswith("bot> ")]) == 3


def test_what_is_not_read_of_a_long_line_is_told_beside_its_answer(run_dir, typed, capsys):
    long = "two plus three " * 24
    typed(f"repeat wai twice\n{long}\n{long}\trepeat wai twice\n".encode())
    assert main(["chat", str(run_dir), "--stdin"]) == 0
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 3
    assert said.err == "towers: line 2: the first 8 tokens of the message were not read.\n"


def test_a_run_whose_text_is_gone_says_so(run_dir, tmp_path, capsys):
    shutil.copytree(run_dir, tmp_path / "run", ignore=shutil.ignore_patterns("text"))
    assert main(["chat", str(tmp_path / "run"), "--stdin"]) == 2
    assert f"{tmp_path / 'run' / 'text'} is missing" in capsys.readouterr().err


def test_chat_says_first_what_the_run_was_trained_on(run_dir, capsys):
    pairs = json.loads((run_dir / "run.json").read_text())["about"]["pairs"]
    assert main(["chat", str(run_dir), "--ask", "/quit"]) == 0
    line = capsys.readouterr().out.splitlines()[1]
    alone = "It answers each message by itself."
    assert line == f"It was trained on {pairs} pairs of corpus.tsv. {alone}"
    assert 100 < pairs < 128


@pytest.mark.slow
def test_a_beam_of_one_answers_greedily(answers_of):
    assert answers_of("--beam", "1") == answers_of()


def test_conversation_remembers_forgets_and_ends(run_dir, capfd, monkeypatch):
    lines = "hello\n\n/new\nplease say wai\n/quit\nnever read\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    assert main(["chat", str(run_dir)]) == 0
    found = capfd.readouterr()
    assert found.err == "" and found.out.count("bot> ") == 2


def ask_export(folder, *arguments):
    """Asks an exported model in a process that cannot import this package."""
    spy = (
        "import runpy, sys\n"
        f"sys.path = [p for p in sys.path if p not in ('', {str(ROOT)!r})]\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        f"runpy.run_path({str(folder / 'answer.py')!r}, run_name='__main__')\n"
        "ours = [m for name, m in sys.modules.items() if name.split('.')[0] == 'towers']\n"
        "homes = {getattr(m, '__file__', '') for m in ours}\n"
        f"others = [one for one in homes if not one.startswith({str(folder)!r})]\n"
        "sys.exit(f'imported {others}' if others or not homes else 0)\n"
    )
    command = [sys.executable, "-c", spy, *arguments]
    asked = "" if arguments else QUESTIONS
    result = subprocess.run(command, input=asked, capture_output=True, text=True, cwd=folder)
    assert result.returncode == 0, result.stderr
    return result.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    "options",
    [pytest.param((), marks=pytest.mark.slow), ("--beam", "3", "--nbest", "2")],
    ids=str,
)
def test_an_export_answers_alike_in_a_process_without_this_package(
    run_dir, answers_of, tmp_path, options
):
    output = tmp_path / "export"
    assert main(["export", str(run_dir), "--output", str(output), *options]) == 0
    assert set(os.listdir(output)) <= NAMES
    assert ask_export(output) == answers_of(*options)
    assert ask_export(output, *QUESTIONS.split("\n")[:-1]) == answers_of(*options)
    command = [sys.executable, str(output / "answer.py"), "--help"]
    helped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "per argument or line" in helped.stdout


@pytest.mark.slow
def test_subwords_are_learned_kept_with_the_run_and_exported(corpus, tmp_path, capsys):
    pieces = ["--set", "tokenizer=subwords", "--set", "vocabulary_size=80"]
    run_dir, output = tmp_path / "run", tmp_path / "export"
    assert train(run_dir, "--data", str(corpus), "--steps", "4", *pieces) == 0
    assert "vocabulary of 80" in capsys.readouterr().out
    assert main(["export", str(run_dir), "--output", str(output)]) == 0
    assert ask_export(output) == ask(run_dir)


def test_an_export_that_is_there_is_not_overwritten(run_dir, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["export", str(run_dir), "--output", str(tmp_path)]) == 2
    assert "exists already" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
    other = tmp_path / "other" / "model" / "saved_model.pb"  # Of another program's.
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    assert main(["export", str(run_dir), "--output", str(tmp_path / "other"), "--overwrite"]) == 2
    assert "it is not an export" in capsys.readouterr().err and other.read_text() == "mine"


def test_an_export_is_overwritten_unless_another_file_is_in_it(run_dir, tmp_path, capsys):
    output = tmp_path / "export"
    command = ["export", str(run_dir), "--output", str(output)]
    assert main(command) == 0
    assert main(command) == 2
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert main([*command, "--overwrite"]) == 0
    (output / "notes.txt").write_text("mine")
    assert main([*command, "--overwrite"]) == 2
    assert "also holds what is not the export's: notes.txt" in capsys.readouterr().err
    assert (output / "notes.txt").read_text() == "mine"


def test_a_run_goes_on_with_its_own_data(run_dir, folder, capsys):
    data = RunDirectory(run_dir).read()["data"]
    shutil.copytree(run_dir, folder / "going on")
    assert train("going on", "--steps", "7") == 0
    output = capsys.readouterr().out
    assert "continues at step 6" in output and f", with its own data={data[0]}" in output
    assert data and RunDirectory("going on").read()["data"] == data


@pytest.mark.slow
def test_a_run_does_not_go_on_with_another_corpus(run_dir, corpus, capsys, folder):
    shutil.copytree(run_dir, folder / "moved")
    other = folder / "other.tsv"
    other.write_text(corpus.read_text())
    assert train("moved", "--data", str(other), "--steps", "7") == 0  # The same content.
    other.write_text(corpus.read_text().replace("course", "cause"))
    capsys.readouterr()
    assert train("moved", "--data", str(other), "--steps", "8") == 2
    error = capsys.readouterr().err
    assert "The data has a different vocabulary" in error
    assert f"the data that it was trained on (--data {other})" in error


def start(run, corpus, steps, network):
    command = [sys.executable, "-m", "towers.scripts.main", "train", "chatbot", "--language", "en"]
    command += ["--run-dir", run, "--data", str(corpus), "--towers", "2", *TINY]
    command += ["--set", f"network={network}"]
    command += ["--steps", str(steps), "--deterministic", "--report-every", "1"]
    command += ["--checkpoint-every", "3"]
    return started(command)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["recurrent", "transformer"])
def test_a_killed_run_ends_as_one_that_was_not(corpus, folder, network):
    """Law 7, in the middle of an epoch, dropout on: weights and optimizer are bit-identical."""
    runs = [f"{network}_killed", f"{network}_whole"]
    with start(runs[0], corpus, 14, network) as process:
        for line in process.stdout:
            if line.startswith("train | step 5"):
                break
    for run in runs:
        with start(run, corpus, 14, network) as process:
            assert "step 14" in finish(process)
    killed, whole = (CheckpointFolder(folder / run / "checkpoints").latest() for run in runs)
    assert killed.step == whole.step == 14
    for group, arrays in whole.groups.items():
        for mine, its in zip(killed.groups[group], arrays, strict=True):
            np.testing.assert_array_equal(mine.array, its.array, err_msg=its.path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--language", "fr"], "language"),
        (["--kind", "conf"], "conv"),
        (["--encoding", "utf-99"], "utf-99"),
        (["--data", "missing.conv"], "missing.conv"),
        (["--context", "-1"], "context"),
        (["--set", "pairing=twice"], "pairing"),
        (["--set", "cell=rnn"], "cell must be one of lstm, gru"),
        (["--set", "attention=none"], "attention must be one of"),
        (["--set", "hidden_size=7"], "hidden_size must be even"),
        (["--set", "vocabulary_size=3"], "vocabulary_size must be at least"),
        (["--set", "max_answer_length=0"], "max_answer_length"),
        (["--set", "held_out=1.5"], "held_out"),
        (["--set", "dropout_rate=1"], "dropout_rate"),
        (["--set", "batch_tokens=0"], "batch_tokens"),
    ],
    ids=str,
)
def test_wrong_input_is_refused(arguments, message, capsys, corpus):
    data = [] if "--data" in arguments else ["--data", str(corpus)]
    assert train("refused", *data, *arguments) == 2
    assert message in capsys.readouterr().err
    assert not pathlib.Path("refused").exists()


def test_flags_of_other_recipes_and_runs_without_text_are_refused(capsys, folder):
    assert main(["train", "shapes", "--language", "zh"]) == 2
    assert "no field for --language" in capsys.readouterr().err
    assert main(["prepare", "shapes"]) == 2
    assert "nothing to prepare" in capsys.readouterr().err
    shapes = ["--run-dir", "shapes", "--steps", "1", "--set", "filters=2,3"]
    assert main(["train", "shapes", *shapes]) == 0
    assert main(["chat", "shapes", "--stdin"]) == 2
    assert "has no text" in capsys.readouterr().err
    assert main(["chat", "nowhere", "--stdin"]) == 2
    assert "holds no run" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--nbest", "3"], ["--beam", "2", "--temperature", "1"]])
def test_answers_that_no_decoding_gives_are_refused_by_the_flags_names(options, run_dir, capsys):
    assert main(["chat", str(run_dir), "--ask", "Hello", *options]) == 2
    error = capsys.readouterr().err
    assert f"Received {' '.join(options[:2])}" in error and "--beam" in error


@pytest.mark.slow
def test_a_reader_that_leaves_ends_the_conversation_quietly(run_dir):
    command = [sys.executable, "-m", "towers.scripts.main", "chat", str(run_dir), "--stdin"]
    pipe = subprocess.PIPE
    with started(command, stdin=pipe, stderr=pipe) as process:
        process.stdout.close()
        process.stdin.write(QUESTIONS)
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


def test_a_vocabulary_with_two_swapped_lines_is_refused(run_dir, tmp_path, capsys):
    shutil.copytree(run_dir, tmp_path / "run")
    (path,) = (tmp_path / "run").rglob("vocabulary.txt")
    *lines, one, other = path.read_text(encoding="utf-8").splitlines(keepends=True)
    path.write_text("".join([*lines, other, one]), encoding="utf-8")
    for command in (["chat", "--ask", "say wai"], ["evaluate"], ["export", "--output", "x"]):
        assert main([command[0], str(tmp_path / "run"), *command[1:]]) == 2
        assert "differs from what the run wrote" in capsys.readouterr().err


@pytest.mark.slow
def test_another_file_is_evaluated_whole_and_the_runs_own_as_then(run_dir, corpus, capsys):
    other = run_dir.parent / "others.tsv"
    other.write_text("please say wai\tof course : wai .\nrepeat wzz twice\twzz wzz .\n" * 5)
    shutil.copy(corpus, moved := run_dir.parent / "moved.tsv")
    reports = [evaluate(run_dir, capsys, *data) for data in ((), ("--data", str(moved)))]
    assert reports[0] == reports[1]
    found = evaluate(run_dir, capsys, "--data", str(other))
    assert found["tokens"] == 5 * (6 + 4) and found["loss"] != reports[0]["loss"]


@pytest.fixture
def typed(monkeypatch):
    """Returns a function that gives these bytes to what is read from here on."""

    def give(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        prepare_streams()

    return give


def test_a_line_that_is_no_utf_8_is_named_after_the_answers_to_those_before(run_dir, typed, capsys):
    typed("repeat wai twice\nplease say 你\n".encode() + b"caf\xe9\nrepeat wai twice\n")
    assert main(["chat", str(run_dir), "--stdin"]) == 2
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 2
    assert r"Line 3 of the input is not text in UTF-8: 'caf\xe9'" in said.err


def test_what_is_typed_in_another_encoding_does_not_end_a_conversation(run_dir, typed, capsys):
    typed(b"repeat wai twice\ncaf\xe9\nrepeat wai twice\n")
    assert main(["chat", str(run_dir)]) == 0
    said = capsys.readouterr().out
    assert said.count("bot> ") == 2 and r"That is not text in UTF-8: 'caf\xe9'" in said


ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONIOENCODING": ""}


@pytest.fixture(scope="module")
def programs(run_dir):
    """The commands that answer lines: that of the run, and that of its export."""
    output = run_dir.parent / "exported"
    assert main(["export", str(run_dir), "--output", str(output)]) == 0
    return {
        "chat": [*TOWERS, "chat", str(run_dir), "--stdin"],
        "export": [sys.executable, str(output / "answer.py")],
    }


def answer_bytes(command, content, **options):
    """Returns the exit code, what a program prints and its errors, all of them ASCII."""
    environment = {**os.environ, **ASCII, "PYTHONPATH": str(ROOT)}
    given = {"input": content, "capture_output": True, "timeout": PATIENCE, **options}
    done = subprocess.run(command, env=environment, check=False, **given)
    return done.returncode, done.stdout.decode("ascii"), done.stderr.decode("ascii")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chat", "export"])
def test_text_is_utf_8_in_any_locale_and_other_bytes_are_refused(programs, name):
    said = "please say 你好\tof course : 你好 .\tplease say 你好\n"
    code, answers, errors = answer_bytes(programs[name], (said * 2).encode())
    assert (code, errors) == (0, "") and len(answers.splitlines()) == 2
    for other in ("please say 你好\n".encode("gbk"), b"\xed\xa0\x80\n"):
        code, _, errors = answer_bytes(programs[name], other)
        assert code in (1, 2) and "UTF-8" in errors and errors.count("\n") == 1


@pytest.mark.slow
def test_a_reader_of_an_exports_answers_may_leave(programs):
    with started(programs["export"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        process.stdin.write(QUESTIONS * 3)
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == ("", 141)


@pytest.mark.slow
def test_an_argument_that_is_no_utf_8_is_refused(programs):
    command = [*programs["chat"][:-1], "--ask", "你好".encode("gbk")]
    code, _, errors = answer_bytes(command, b"")
    assert code == 2 and "Expected text in UTF-8" in errors and errors.count("\n") == 1
    command = [*programs["chat"][:-1], "--ask", "please say 你好".encode()]
    code, answers, errors = answer_bytes(command, b"")
    assert (code, errors) == (0, "") and "you> please say \\u4f60\\u597d\nbot> " in answers


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("name", ["chat", "export"])
def test_a_terminal_of_another_encoding_is_told(programs, name):
    terminal, its_end = os.openpty()
    command = [one for one in programs[name] if one != "--stdin"]
    ends = {"stdin": its_end, "stdout": its_end, "stderr": its_end}
    with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, **ends) as process:
        os.close(its_end)
        shown = b""
        try:
            while not shown.endswith(b"you> "):
                shown += os.read(terminal, 4096)
            os.write(terminal, "你好\n".encode("gbk") + b"\x04")
            shown = b""
            with contextlib.suppress(OSError):  # The terminal is closed.
                while part := os.read(terminal, 4096):
                    shown += part
            assert process.wait(PATIENCE) == (0 if name == "chat" else 1)
        finally:
            process.kill()
            os.close(terminal)
    assert b"UTF-8" in shown and b"Traceback" not in shown and b"bot>" not in shown


def test_a_missing_library_is_an_error_without_traceback(capsys, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    command = ["prepare", "chatbot", "--language", "en", "--set", "tokenizer=subwords"]
    assert main([*command, "--set", "vocabulary_size=777"]) == 2
    assert "pip install -e '.[subwords]'" in capsys.readouterr().err


@pytest.mark.slow
def test_one_and_two_towers_agree(corpus, capsys, folder):
    """Law 1 by the commands: the same global batches, sparse gradients, clipping."""
    losses = []
    for towers in ("1", "2"):
        run = f"agree{towers}"
        command = ["train", "chatbot", "--language", "en", "--run-dir", run, "--towers", towers]
        command += ["--data", str(corpus), "--steps", "20", *TINY, *NO_DROPOUT]
        command += ["--set", "tied_output=false"]
        assert main(command) == 0
        assert main(["evaluate", run, "--json", "--checkpoint", "latest"]) == 0
        losses.append(json.loads(capsys.readouterr().out.splitlines()[-1])["loss"])
    assert abs(losses[0] - losses[1]) < 1e-5


@pytest.mark.slow
def test_training_on_chinese_shows_chinese(folder, capsys):
    """Words are cut by jieba, rare ones spelled; the answers are Chinese, without blanks."""
    lines = [
        f"M 今天是几月{day}号\nM 是{day}号" for day in "一二三四五六七八九十" for _ in range(9)
    ]
    path = folder / "dates.conv"
    path.write_text("".join(f"E\n{line}\n" for line in lines), encoding="utf-8")
    command = ["train", "chatbot", "--language", "zh", "--data", str(path), "--run-dir", "dates"]
    command += ["--steps", "60", "--evaluate-every", "60", "--towers", "2"]
    for field in ("hidden_size=32", "held_out=0.2", "learning_rate=0.01", "warmup_steps=1"):
        command += ["--set", field]
    assert main(command) == 0
    exchanges = [line for line in capsys.readouterr().out.splitlines() if " -> " in line]
    assert any("号" in line.split(" -> ")[1].split("(given")[0] for line in exchanges)
