"""Copies of the variables: one that all towers share, or identical copies on every tower."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

import keras
import tensorflow as tf

from towers.devices.op_devices import device_name
from towers.devices.stages import on_devices
from towers.ground.private_apis import take_identity
from towers.optimizers.fused import apply_gradients, optimizers_in
from towers.saving.checkpoint_files import tensorflow_variable, value_of
from towers.travel.gradients import Gradient, scale_gradients
from towers.travel.packing import send_together
from towers.variables.optimizers import (
    LearningRates,
    check_slots,
    warn_of_unconnected,
)
from towers.variables.outside_writes import StepWrites, unobserved
from towers.variables.shared_variables import SharedVariables

# By the bytes of an element, a type that GPUs compare; they leave int32 to the host.
BITS = {1: tf.uint8, 2: tf.uint16, 4: tf.uint32, 8: tf.uint64, 16: tf.uint64}


class Copy(NamedTuple):
    """One copy of the variables of the model and of the optimizer.

    Attributes:
        devices: the copy's devices, one for each stage of a tower.
        variables: its variables, in the order of `SharedVariables.all`.
        slots: the optimizer's variables for them, in the order of `Optimizer.variables`.
    """

    devices: Sequence[str]
    variables: Sequence[keras.Variable]
    slots: Sequence[keras.Variable]

    @property
    def device(self) -> str:
        """The first of its devices."""
        return self.devices[0]

    @property
    def all(self) -> list[keras.Variable]:
        """All its variables."""
        return [*self.variables, *self.slots]


class Copies:
    """The copies of the variables; the first consists of the model's own variables.

    With one copy, the towers' gradients are added on its device. With a copy on every tower,
    gradients travel between the towers, and the same operations update each copy from the same
    sums. There is one optimizer: it is applied to each copy in turn, so no setting is lost.

    What is written outside of the step, such as a learning rate or restored weights, is copied
    before the next step.

    Args:
        shared: the model's variables.
        optimizer: the model's optimizer; it is built here unless it was before.
        groups: the devices of each copy, one for each stage of a tower; the model's variables are
            on those of the first.

    Attributes:
        devices: the first device of each copy.
    """

    def __init__(
        self,
        shared: SharedVariables,
        optimizer: keras.optimizers.Optimizer,
        groups: Sequence[Sequence[str]],
    ):
        self.devices = devices = tuple(group[0] for group in groups)
        if not optimizer.built:  # As in Keras: a `build` of the user's may begin the slots anew.
            with tf.device(devices[0]):  # Keras makes each slot on the device of its variable.
                optimizer.build(shared.trainable)
        check_slots(optimizer, shared)
        self.shared = shared
        self.optimizer = optimizer
        first = Copy(groups[0], shared.all, optimizer.variables)
        self._copies = [first, *(make_copy(first, group) for group in groups[1:])]
        self._rates = LearningRates(optimizer)
        self._writes = StepWrites(first.all, watched=len(devices) > 1)
        self._stale = len(devices) > 1  # The other copies hold zeros so far.

    def __len__(self) -> int:
        return len(self._copies)

    def variables_of(self, tower: int) -> Sequence[keras.Variable]:
        """Returns the copy that a tower reads, in the order of `SharedVariables.all`."""
        return self._copies[tower % len(self._copies)].variables

    def learning_rate(self) -> tf.Tensor:
        """Returns the learning rate of the next update, a scalar.

        It is NaN for a `keras.optimizers.MultiOptimizer`, whose optimizers have one each.
        """
        if optimizers_in(self.optimizer) != [self.optimizer]:
            return tf.constant(float("nan"))
        return tf.identity(self.optimizer.learning_rate)

    def scale(
        self, gradients: Sequence[Sequence[Gradient]], factor: tf.Tensor | None
    ) -> list[list[Gradient]]:
        """Returns the gradients for each copy times a scalar, or 1 for None, as `apply` takes them.

        Each is on its copy's devices and has the dtype of its variable.
        """
        scaled = []
        for copy, summed in zip(self._copies, gradients, strict=True):
            with on_devices(copy.devices):
                own = summed if factor is None else scale_gradients(summed, tf.identity(factor))
                pairs = zip(own, self.shared.trainable, strict=True)
                scaled.append([None if g is None else tf.cast(g, v.dtype) for g, v in pairs])
        return scaled

    def apply(
        self,
        gradients: Sequence[Sequence[Gradient]],
        states: Sequence[tf.Tensor | None],
        assigned: Sequence[tf.Tensor | None],
        *,
        add_states: bool = False,
    ) -> None:
        """Applies the same update to every copy.

        Args:
            gradients: for each copy, one gradient per trainable variable, in its dtype; None
                without connection.
            states: new values of the non-trainable variables; None for a variable that stays.
            assigned: values of the trainable variables from which the update starts; None for the
                variable's own.
            add_states: whether `states` are differences to add.
        """
        warn_of_unconnected(self.shared.trainable, gradients[0])
        sent = send_together(list(states), self.devices[0], self.devices)
        for copy, summed, own_states in zip(self._copies, gradients, sent, strict=True):
            with on_devices(copy.devices), self._scope(copy), unobserved():
                assign_values(self.shared.trainable, assigned)
                pairs = zip(summed, self.shared.trainable, strict=True)
                connected = [(g, v) for g, v in pairs if g is not None]
                apply_gradients(self.optimizer, connected)
                assign_values(self.shared.states, own_states, add=add_states)
        kept = zip(self.shared.all, [*gradients[0], *states], strict=True)
        self._writes.leaves(variable for variable, change in kept if change is None)

    def _scope(self, copy: Copy) -> contextlib.AbstractContextManager[object]:
        """Returns the scope in which the model's and the optimizer's variables are a copy's."""
        first = self._copies[0]
        return contextlib.nullcontext() if copy is first else CopyScope(first, copy)

    def refresh(self) -> None:
        """Copies what was written outside of the step to the other copies; call it before a step.

        Raises:
            RuntimeError: the optimizer was given another learning rate than a number; or, before
                the first step, the copies are not bit-identical afterwards.
        """
        self._rates.check()
        if self._stale:
            self.copy_from_model()
        elif self._writes.pending:
            self._copy(self._writes.take())

    def wrote(self) -> None:
        """Tells other steps that use these variables that this step has written them."""
        self._writes.tell_others()

    def copy_from_model(self) -> None:
        """Copies the values of the model's variables and optimizer to the other copies.

        Raises:
            RuntimeError: a copy is not bit-identical afterwards.
        """
        self._stale = False
        self._writes.take()
        self._copy(range(len(self._copies[0].all)))
        self._compare()

    def _copy(self, indices: Sequence[int]) -> None:
        """Copies the variables at these indices of `Copy.all` from the first copy to the others."""
        first = self._copies[0].all
        for copy in self._copies[1:]:
            variables = copy.all
            with tf.device(copy.device):
                for index in indices:
                    variables[index].assign(tf.convert_to_tensor(first[index].value))

    def check(self) -> None:
        """Raises RuntimeError unless all copies are bit-identical."""
        if len(self._copies) > 1:
            self.refresh()
            self._compare()

    def _compare(self) -> None:
        """Raises RuntimeError unless the variables are the same in all copies."""
        first, *others = self._copies
        if not others or same_bits(first.all, [copy.all for copy in others], first.device):
            return
        for copy in others:  # The host finds out which one it is.
            for variable, own in zip(first.all, copy.all, strict=True):
                if value_of(variable).tobytes() != value_of(own).tobytes():
                    raise RuntimeError(
                        f"The copy of '{variable.path}' on {copy.device} differs from that on "
                        f"{first.device}. If something outside of the step wrote the variable with "
                        "a raw op, or in a tf.function traced before the step was built, call the "
                        "step's copy_parameters() after it, or train with parameters='cpu'. "
                        "Otherwise a device or the link between two devices is broken: train with "
                        "--parameters cpu."
                    )


class CopyScope(keras.StatelessScope):
    """The scope in which the variables of the first copy stand for those of another.

    Whatever reads or writes a variable of the first copy, such as an optimizer, reads or writes its
    counterpart.
    """

    def __init__(self, first: Copy, copy: Copy):
        super().__init__(initialize_variables=False)
        counterparts = map(tensorflow_variable, copy.all)
        self.state_mapping = dict(zip(map(id, first.all), counterparts, strict=True))

    def add_update(self, update: tuple[keras.Variable, tf.Tensor]) -> None:
        """Assigns a value to a variable's counterpart."""
        variable, value = update
        if id(variable) not in self.state_mapping:
            raise RuntimeError(
                f"The optimizer assigns the variable '{variable.path}', which is neither the "
                "model's nor the optimizer's, so the towers have no copy of it. Make it with the "
                "optimizer's add_variable, or train with parameters='cpu'."
            )
        self.state_mapping[id(variable)].assign(value)


def make_copy(first: Copy, devices: Sequence[str]) -> Copy:
    """Returns a copy on other devices, one for each of the first copy, with zeros as its values."""
    counterparts = dict(zip(map(device_name, first.devices), devices, strict=True))

    def make(variable: keras.Variable) -> keras.Variable:
        own = device_name(tensorflow_variable(variable).device)
        with tf.device(counterparts.get(own, devices[0])):
            return make_variable_like(variable)

    return Copy(devices, *(list(map(make, group)) for group in (first.variables, first.slots)))


def make_variable_like(variable: keras.Variable) -> keras.Variable:
    """Returns a variable of zeros that an optimizer cannot tell from the given one."""
    source = tensorflow_variable(variable)
    scope = source.name.rpartition("/")[0]
    with tf.name_scope(f"{scope}/" if scope else ""):
        copy = keras.Variable(
            "zeros",
            shape=variable.shape,
            dtype=variable.dtype,
            trainable=variable.trainable,
            autocast=False,  # The model's variable casts the value that is read from its copy.
            name=variable.name,
        )
    # Keras's optimizers find the slots of a variable, and its exclusions, by this name.
    take_identity(tensorflow_variable(copy), source)
    return copy


def assign_values(
    variables: Sequence[keras.Variable], values: Sequence[tf.Tensor | None], *, add: bool = False
) -> None:
    """Assigns or adds a value to each variable; None leaves one unchanged. A bool is assigned."""
    for variable, value in zip(variables, values, strict=True):
        if value is not None:
            adds = add and value.dtype != tf.bool
            variable.assign_add(value) if adds else variable.assign(value)


def same_bits(
    variables: Sequence[keras.Variable], copies: Sequence[Sequence[keras.Variable]], device: str
) -> bool:
    """Returns whether every copy of the variables is bit-identical to them.

    NaN equals NaN if their bits are the same, and 0 differs from -0. The copies travel one after
    the other to the device of the variables, which compares them; the host reads one number.
    """
    with tf.device(device):
        same = tf.constant(True)
        for index, variable in enumerate(variables):
            bits = bits_of(variable)
            for copy in copies:
                same &= tf.reduce_all(tf.equal(bits, bits_of(copy[index])))
        return bool(same)


def bits_of(variable: keras.Variable) -> tf.Tensor:
    """Returns a variable's value on the current device, as unsigned integers."""
    value = tf.identity(variable.value)
    if value.dtype == tf.bool:
        return tf.cast(value, tf.uint8)
    return tf.bitcast(value, BITS[value.dtype.size])
