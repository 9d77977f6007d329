"""The scope of a tower's call: the values that it reads and assigns for Keras variables."""

from __future__ import annotations

from collections.abc import Sequence

import keras
import tensorflow as tf

from towers.ground.private_apis import global_seed_generator, stored_value
from towers.step.micro_batches import Part
from towers.step.sums import add_states, merge_state, share_of_state
from towers.travel.pairs import add_in_pairs
from towers.variables.own_draws import fold_in
from towers.variables.shared_variables import is_seed
from towers.variables.tower_scope import Scope, new_variable_error


class CallScope(Scope):
    """The scope of one tower's call. In it, no variable is made, and none is written.

    Attributes:
        assigned: the variables that the function assigned.
        others: by id, the variables that it read and for which this call has no value of its own.
    """

    def __init__(self, tower: int):
        super().__init__(f"Tower {tower}")
        global_seed_generator()  # Made in this scope, it would stay without a value.
        self.assigned: list[keras.Variable] = []
        self.others: dict[int, keras.Variable] = {}
        self._tower = tower

    def get_current_value(self, variable: keras.Variable) -> tf.Tensor | None:
        """Returns the variable's value in this call; None if the variable itself is to be read."""
        value = super().get_current_value(variable)
        if value is None:
            self.others[id(variable)] = variable
        if value is None and stored_value(variable) is None:  # Keras would take the initial value.
            raise new_variable_error(self.name, variable.path)
        if value is None and is_seed(variable) and self._tower:  # Tower 0 draws as one device.
            value = fold_in(tf.cast(stored_value(variable), tf.int64), self._tower)
            value = tf.cast(value, variable.dtype)
        return value

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Stores a value instead of assigning it; an assignment has no gradient."""
        variable, value = update
        if variable.trainable:
            raise RuntimeError(
                f"{self.name} assigns the trainable variable '{variable.path}'. A tower changes "
                "trainable variables through gradients only; make it `trainable=False`."
            )
        if not any(variable is other for other in self.assigned):
            self.assigned.append(variable)
        super().add_update((variable, tf.stop_gradient(value)))

    def left_within(self, graph: tf.Graph) -> str:
        """Returns what the function did with a value that does not leave a loop or a branch."""
        assigned = [self.state_mapping[id(variable)] for variable in self.assigned]
        if any(tf.is_symbolic_tensor(one) and one.graph is not graph for one in assigned):
            return "draws random numbers, or assigns a state, within a loop or a branch"
        return ""


def assign_once(scopes: Sequence[CallScope], sizes: Sequence[tf.Tensor]) -> None:
    """Assigns one value to each variable that the towers assigned; means are weighted by rows."""
    if not scopes[0].assigned:
        return
    weights = [tf.cast(size, tf.float64) for size in sizes]
    nonempty = [tf.cast(size > 0, tf.float64) for size in sizes]
    parts = [Part(i, tf.zeros([2], tf.int64), tf.constant(i == 0)) for i in range(len(scopes))]
    for variable in scopes[0].assigned:
        before = tf.convert_to_tensor(variable.value)
        values = [scope.state_mapping[id(variable)] for scope in scopes]
        rows = zip(values, parts, weights, nonempty, strict=True)
        shares = [share_of_state(variable, value, before, *row) for value, *row in rows]
        with tf.device(variable.value.device):
            total = add_in_pairs(add_states, shares)
            variable.assign(merge_state(variable, total, tf.add_n(weights), before))


def captured_in(graph: tf.Graph) -> list[tf.Tensor]:
    """Returns what a trace takes from around it and may have a gradient."""
    return [outer for outer, _ in graph.captures if outer.dtype.is_floating]
