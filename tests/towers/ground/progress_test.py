"""A long piece of work does not begin after a Ctrl-C."""

import pytest

from tests.programs import end_of_losing


@pytest.mark.parametrize("made", [True, False])
def test_an_interrupt_that_python_dropped_ends_the_program_before_its_next_long_work(made):
    scope = "towers.ground.progress.progress(3, 'evaluating', 'batch')"
    output, error = end_of_losing(scope, made)
    assert ("not interrupted" in output) != made
    assert ("KeyboardInterrupt" in error.splitlines()[-1:]) == made, error
