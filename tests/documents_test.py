"""The documents keep their word: commands parse, examples run, links and names exist."""

import argparse
import ast
import dataclasses
import functools
import importlib.util
import inspect
import re
import shlex
import textwrap
import typing

import keras
import numpy as np
import pytest
import tensorflow as tf

from benchmarks import made
from benchmarks.commands import build_parser as build_benchmarks_parser
from tests.paths import ROOT
from towers.data.reading.dialogues import KINDS
from towers.scripts import bootstrap
from towers.scripts.main import COMMANDS, build_parser
from towers.scripts.other_words import command_line
from towers.scripts.training.options import EXCHANGES
from towers.scripts.training.options import FLAGS as OWN_FLAGS

PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [
        *sorted(ROOT.glob("README*.md")),
        ROOT / "CONTRIBUTING.md",
        *sorted(ROOT.glob("docs/**/*.md")),
    ]
}
# A comment `<!-- not run: the reason -->` above a fence keeps its block from being run.
BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n\n?)?```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
INLINE_COMMAND = re.compile(r"`(?:time )?((?:towers|python -m benchmarks) [a-z]+(?: [^`]*)?)`")
BENCHMARKS = ["python", "-m", "benchmarks"]
LINK = re.compile(r"\]\(([^)\s]+)\)")
REPOSITORY_PATH = re.compile(
    r"`((?:towers|models|data|scripts|benchmarks|tests|docs)/[\w./-]+\.(?:py|pyi|md))`"
)
WALK_ENTRY = re.compile(r"^(\d+)\. `([\w/]+\.py)`: `([\w.]+)`", re.MULTILINE)
QUOTED = re.compile(r"quoted from ([\w/]+\.py): ([\w.]+)")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+")
MOST_LINES_OF_README = 160

each_page = pytest.mark.parametrize("page", PAGES)


def load_program(name):
    """Returns a module of docs/, which is no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATE = load_program("generate")


# Commands.


def typed_commands_of(text):
    """Returns our commands in the shell blocks, without comments and `towers`."""
    lines = [
        line.strip().removeprefix("$ ")
        for block in BLOCK.finditer(text)
        if block["language"] in ("sh", "bash", "console")
        for line in block["code"].replace("\\\n", " ").splitlines()
    ]
    found = [line for line in lines if line.startswith(("towers ", "python -m benchmarks "))]
    return list(map(words_of, found))


def words_of(line):
    return shlex.split(line.removeprefix("towers "), comments=True)


def commands_of(text):
    """Returns our commands in the shell blocks and code spans."""
    spans = INLINE_COMMAND.findall(BLOCK.sub("", text))
    return [*typed_commands_of(text), *map(words_of, spans)]


@each_page
def test_commands_parse_and_name_what_exists(page):
    for command in commands_of(PAGES[page]):
        is_of_benchmarks = command[:3] == BENCHMARKS
        arguments = command[3:] if is_of_benchmarks else command_line(command)
        is_template = len(arguments) == 1 or any(map(PLACEHOLDER.fullmatch, arguments))
        if is_of_benchmarks:
            assert arguments[0] in subparsers_of(build_benchmarks_parser()), arguments
            if not is_template:
                check_fields(vars(build_benchmarks_parser().parse_args(arguments)))
        elif is_template or "--help" in arguments:
            assert arguments[0] in GENERATE.command_parsers(), arguments
        else:
            check_command(arguments)


def check_command(arguments):
    """Parses a command, and the one that `launch` runs."""
    options = vars(build_parser().parse_args(arguments))
    if options["command"] == "launch":
        check_command([part for part in options["command_line"] if part != "--"])
    check_fields(options)


def check_fields(options):
    """Checks that the recipe and the fields of a command exist."""
    recipe = options.get("recipe")
    known = recipe_fields()
    assert recipe is None or recipe in known, options
    fields = known[recipe] if recipe else set().union(*known.values())
    assigned = {override.partition("=")[0] for override in options.get("overrides") or []}
    assert assigned <= fields, options


def subparsers_of(parser):
    """Returns the parsers of a program's commands, by name."""
    (commands,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return commands.choices


@functools.cache
def recipe_fields():
    """Returns the names of each recipe's fields, by the recipe's name; benchmarks make up some."""
    made_up = {field.name for field in dataclasses.fields(made.Fields)}
    return {
        **dict.fromkeys(["made", *made.RECIPES], made_up),
        **{
            name: {field for field, _, _ in GENERATE.recipe_fields(name)}
            for name in GENERATE.recipe_names()
        },
    }


def test_the_guides_can_be_typed_one_after_the_other():
    """Each run directory has one recipe, with one data and one set of fields."""
    runs = {}
    for page in [name for name in PAGES if name.startswith(("README", "docs/guides/"))]:
        for command in typed_commands_of(PAGES[page]):
            if "train" not in command or "--help" in command:
                continue
            given = vars(build_parser().parse_args(command[command.index("train") :]))
            if "recipe" in given:
                settings = {name: given.get(name) for name in ("recipe", "data", *OWN_FLAGS)}
                del settings["epochs"]  # A run may go on with more.
                settings["overrides"] = sorted(given.get("overrides", []))
                name = given.get("run_dir", f"runs/{given['recipe']}")
                runs.setdefault(name, {}).setdefault(str(settings), page)
    assert {name: found for name, found in runs.items() if len(found) > 1} == {}
    assert len(runs) > 30


def test_kinds_of_chats_exchanges_and_commands_are_in_a_guide():
    guides = "".join(text for page, text in PAGES.items() if page.startswith("docs/guides/"))
    assert [kind for kind in KINDS if f"`{kind}`" not in PAGES["docs/guides/my-chats.md"]] == []
    assert [name for name in EXCHANGES if f"`{name}`" not in PAGES["docs/guides/devices.md"]] == []
    assert [name for name in COMMANDS if f"towers {name}" not in guides] == []


@each_page
def test_options_in_the_text_exist(page):
    parsers = [
        *GENERATE.command_parsers().values(),
        *subparsers_of(build_benchmarks_parser()).values(),
    ]
    known = {option for parser in parsers for a in parser._actions for option in a.option_strings}
    named = re.findall(r"`(--[a-z][a-z0-9-]+)", BLOCK.sub("", PAGES[page]))
    assert set(named) <= known


def test_set_up_commands_are_those_of_the_bootstrap():
    for text in PAGES.values():
        jobs = re.findall(r"python3 scripts/bootstrap\.py (\w+)", text)
        assert set(jobs) <= set(bootstrap.JOBS)
    readme = re.findall(r"python3 scripts/bootstrap\.py (\w+)", PAGES["README.md"])
    assert {"train", "test"} <= set(readme)


def test_commands_of_the_bootstrap_exist():
    for job in bootstrap.JOBS.values():
        for command in job:
            if command[:2] == bootstrap.TOWERS:
                build_parser().parse_args(command[2:])


# Examples.


def examples_of(text):
    """Returns the Python blocks to run, each at its line of the page, which errors then name."""
    return [
        "\n" * text.count("\n", 0, block.start("code")) + block["code"]
        for block in BLOCK.finditer(text)
        if block["language"] == "python" and not block["reason"]
    ]


def check_losses(names):
    losses = [float(loss) for loss in names["losses"]]
    assert losses[-1] < 0.5 * losses[0]
    assert isinstance(names["model"], keras.Model)
    assert names["evaluation"]["examples"] == 600


def check_merge(names):
    outputs = names["run"](names["features"], names["labels"])
    for key, expected in outputs.items():
        np.testing.assert_allclose(names["merged"][key], expected, rtol=1e-5)
    assert len(names["gradients"]) == 4 and all(part is not None for part in names["gradients"])


def check_position(names):
    assert names["trainer"].position.step == 16
    assert names["manifest"]["step"] == 16


def check_readme(names):
    assert names["trainer"].position.epoch == 5
    assert isinstance(names["model"].trainable_variables[0].value, tf.Variable)


CHECKS = {
    "README.md": check_readme,
    "docs/guides/your-model.md": check_losses,
    "docs/guides/other-steps.md": check_merge,
    "docs/guides/checkpoints.md": check_position,
}
PAGES_WITH_EXAMPLES = [page for page, text in PAGES.items() if examples_of(text)]


# Guides whose examples train several models; the README's are in the default tier.
LONG_EXAMPLES = ("guides/fit.md", "guides/your-model.md", "guides/other-steps.md")


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.slow] * page.endswith(LONG_EXAMPLES))
        for page in PAGES_WITH_EXAMPLES
    ],
)
def test_examples_of_a_page_run_one_after_the_other(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "example"}
    for code in examples_of(PAGES[page]):
        exec(compile(code, page, "exec"), names)
    CHECKS.get(page, lambda names: None)(names)


def test_pages_that_are_checked_have_examples():
    assert set(CHECKS) <= set(PAGES_WITH_EXAMPLES)


# Links, paths and names.


@each_page
def test_links_and_pictures_exist(page):
    for link in LINK.findall(BLOCK.sub("", PAGES[page])):
        if link.startswith(("http://", "https://")):
            continue
        target, _, anchor = link.partition("#")
        path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
        name = str(path.relative_to(ROOT))
        is_generated = page != "README.md" and name.removeprefix("docs/") in GENERATE.PAGES
        assert path.exists() or is_generated, link
        assert not anchor or anchor in anchors_of(PAGES[name]), link


def anchors_of(text):
    """Returns the anchors of a page's headings."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_paths_in_the_text_exist(page):
    missing = [p for p in REPOSITORY_PATH.findall(PAGES[page]) if not (ROOT / p).exists()]
    assert not missing


def test_every_picture_is_shown():
    shown = " ".join(link for text in PAGES.values() for link in LINK.findall(text))
    for picture in [*ROOT.glob("docs/**/*.png"), *ROOT.glob("docs/**/*.svg")]:
        assert picture.name in shown


def test_the_picture_of_a_terminal_has_what_was_left_of_each_line():
    text = "Script started\r\nloading ...\r\x1b[Ka < b\r\n10 %\r9\r\n 1 %\r    \r\n"
    assert load_program("terminal").lines_of(text) == ["a < b", "90 %"]


def test_nothing_is_left_to_be_filled_in():
    assert not [page for page, text in PAGES.items() if "@@" in text or "TODO" in text]


def test_the_readme_is_short():
    assert len(PAGES["README.md"].splitlines()) <= MOST_LINES_OF_README


def defined_names(path):
    """Returns the functions and the methods, as `Class.method`, that a file defines."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            functions = (part for part in node.body if isinstance(part, ast.FunctionDef))
            found |= {f"{node.name}.{function.name}" for function in functions}
    return found


@pytest.mark.parametrize(
    ("section", "most_functions", "most_files"),
    [("One step", 9, 6), ("One sentence pair", 25, None)],
)
def test_the_walk_names_functions_that_exist_and_is_short(section, most_functions, most_files):
    page = PAGES["docs/explanations/way-of-the-data.md"]
    text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    entries = WALK_ENTRY.findall(text)
    numbers = re.findall(r"^(\d+)\. ", text, re.MULTILINE)
    assert numbers == [number for number, _, _ in entries], "every point names a function"
    assert [int(number) for number in numbers] == list(range(1, len(entries) + 1))
    missing = [
        f"{path}: {name}"
        for _, path, name in entries
        if not (ROOT / path).exists() or name not in defined_names(ROOT / path)
    ]
    assert not missing
    assert 1 < len(entries) <= most_functions
    assert most_files is None or len({path for _, path, _ in entries}) <= most_files


def test_code_that_a_page_quotes_is_that_of_the_source():
    quoted = [
        (*match.groups(), block["code"])
        for text in PAGES.values()
        for block in BLOCK.finditer(text)
        if (match := QUOTED.fullmatch(block["reason"] or ""))
    ]
    assert [name for _, name, _ in quoted] == ["TrainStep._step"]
    for path, name, code in quoted:
        source = (ROOT / path).read_text(encoding="utf-8")
        class_name, _, method = name.partition(".")
        (found,) = (
            part
            for node in ast.parse(source).body
            if isinstance(node, ast.ClassDef) and node.name == class_name
            for part in node.body
            if isinstance(part, ast.FunctionDef) and part.name == method
        )
        assert code.strip() == textwrap.dedent(ast.get_source_segment(source, found, padded=True))


# The generated reference.


def test_the_command_line_reference_has_every_option():
    page = GENERATE.command_line_page()
    for name, parser in GENERATE.command_parsers().items():
        section = page.partition(f"## towers {name}\n")[2].partition("\n## ")[0]
        told = [action for action in parser._actions if action.help != argparse.SUPPRESS]
        options = [option for action in told for option in action.option_strings]
        assert section and all(option in section for option in options), name


def test_the_recipe_reference_has_every_recipe_and_its_fields():
    page = GENERATE.recipes_page()
    recipes = {path.stem for path in (ROOT / "scripts" / "recipes").glob("[a-z]*.py")}
    assert set(GENERATE.recipe_names()) == recipes
    for name in recipes:
        assert f"\n## {name}\n" in page
        assert {"batch_size", "epochs", "learning_rate", "clip_norm"} <= recipe_fields()[name]


def test_the_api_reference_has_every_public_name_with_a_docstring():
    page = GENERATE.api_page()
    for namespace in GENERATE.NAMESPACES:
        module = importlib.import_module(f"towers.{namespace}".rstrip("."))
        names = GENERATE.public_names(namespace)
        assert set(names) == set(module.__all__) - set(GENERATE.NAMESPACES)
        for name, origin in names.items():
            assert f"\n::: {origin}.{name}\n" in page
            public = getattr(module, name)
            is_alias = not inspect.isclass(public) and not inspect.isfunction(public)
            is_alias = is_alias or typing.get_origin(public) is not None  # A class in Python 3.10.
            assert is_alias or public.__doc__, name


@each_page
def test_names_of_the_library_in_the_text_exist(page):
    namespaces = "|".join(filter(None, GENERATE.NAMESPACES))
    for namespace, name in re.findall(rf"\btowers\.({namespaces})\.(\w+)", PAGES[page]):
        assert name in GENERATE.public_names(namespace), f"towers.{namespace}.{name}"


def test_the_face_is_small_and_every_name_at_the_top_is_in_a_guide():
    names = GENERATE.public_names()
    guides = [ROOT / "README.md", *(ROOT / "docs" / "guides").glob("*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in guides)
    assert len(names) <= 18
    assert not [name for name in names if not re.search(rf"\btowers\.{name}\b", text)]
