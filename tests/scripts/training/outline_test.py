"""What `towers recipes RECIPE` shows without TensorFlow is what the recipe has."""

import subprocess
import sys

import pytest

from towers.scripts.training.catalogue import describe_recipe, find_recipe, recipe_names
from towers.scripts.training.fields import describe_fields
from towers.scripts.training.outline import light_module, read_outline, takes_files


@pytest.mark.parametrize("name", recipe_names())
def test_an_outline_is_that_of_the_recipe(name):
    outline, fields = read_outline(name), find_recipe(name).fields
    assert outline.description == describe_recipe(name)
    assert describe_fields(outline.fields) == describe_fields(fields)
    assert light_module(name).RECIPE.fields == outline.fields, "it was read without TensorFlow"
    assert takes_files(name) is find_recipe(name).takes_files


def test_what_is_no_recipe_takes_no_files():
    assert not takes_files("chatbox")


def test_the_command_imports_no_tensorflow():
    program = (
        "import sys; from towers.scripts.main import main; "
        "code = main(['recipes', 'chatbot']); "
        "assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules); sys.exit(code)"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert "batch_size=64  " in output
