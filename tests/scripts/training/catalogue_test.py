"""The settings of every recipe are read without TensorFlow and NumPy."""

import subprocess
import sys

import pytest

from towers.scripts.training.catalogue import find_recipe, recipe_names


def run(program):
    """Runs a program that may import neither; returns what it prints."""
    program += "; assert not {'tensorflow', 'keras', 'numpy'} & set(sys.modules), set(sys.modules)"
    command = [sys.executable, "-c", f"import sys; {program}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_imported_alone(name):
    """Each in a process of its own: one could hide behind what another imports."""
    run(f"from towers.scripts.recipes.{name} import RECIPE; assert RECIPE.fields")


def test_the_command_imports_neither():
    program = "from towers.scripts.main import main; assert main(['recipes', 'chatbot']) == 0"
    assert "batch_size=64  " in run(program)


def test_a_run_of_a_program_is_left_to_its_program():
    with pytest.raises(ValueError, match=r"run of towers\.fit .* your own program.*model\.export"):
        find_recipe("towers.fit")
