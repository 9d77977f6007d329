"""The engine's parts, for steps of your own. They may change from one version to the next.

What a step is fed: `Batches` are functions that return an epoch's global batches, `RowBatches`
those that can read some rows of each. `split` cuts a data set of batches into a `Shard` for each
tower, `split_batch` one batch, and `shard_specs` tells their shapes before there is one.
`iterator_of` opens a data set.

What a step is built from: `draw_blueprint` checks what a step is given and makes its `Blueprint`.
A `Tower` runs the tower function on its device, forward and backward; an `Exchange` sums what the
towers found; an `Update` averages and clips it and applies the `Change`. `trace` makes the graph,
to which `number_on_host` gives the step's number.

What there is already: `TrainStep` is the step that `towers.build_train_step` returns, with
`StepResults` and in them `TowerResults`; `EvaluationStep` that of `towers.build_evaluation_step`.

What a tower reads and writes: `SharedVariables` are the model's variables. Within the tower
function, `current_scope` is the `TowerScope` that holds their values.

Whether devices can be trusted with sums: `wrong_sums` names those that add wrongly.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub("towers", __file__)
