"""The kinds of other people's programs are told by their sources."""

import pytest

from benchmarks import published

FIT = "model.fit(x, y)\n"
STEP = "class Gan(keras.Model):\n    def train_step(self, data):\n        pass\n"
LOSS = "class Net(keras.Model):\n    def compute_loss(self, x, y):\n        pass\n"
LOOP = "with tf.GradientTape() as tape:\n    pass\noptimizer.apply_gradients(pairs)\n"
SOURCES = {
    "the step of Keras": FIT,
    "a loss that a layer or a model adds": "self.add_loss(penalty)\n" + FIT,
    "a compute_loss() of its own": LOSS + FIT,
    "a train_step() of its own": STEP + FIT,
    "a loop of its own": "import torch, tensorflow\n" + LOOP,
    "batches one by one": "model.train_on_batch(x, y)\n",
    "devices that it chooses itself": "strategy = tf.distribute.MirroredStrategy()\n" + FIT,
    published.OTHER: 'os.environ["KERAS_BACKEND"] = "jax"\n' + FIT,
    published.UNTRAINED: "model.predict(x)\n",
}


@pytest.mark.parametrize("kind", SOURCES)
def test_a_program_is_told_by_its_source(kind):
    assert published.kind_of(SOURCES[kind]) == kind


def test_the_share_counts_what_trains_on_tensorflow(tmp_path, capsys):
    for number, source in enumerate(SOURCES.values()):
        (tmp_path / f"{number}.py").write_text(source)
    published.main([str(tmp_path), "--names"])
    assert "86% of those that train on TensorFlow" in capsys.readouterr().out  # 6 of 7.


def test_a_folder_without_sources_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        published.main([str(tmp_path / "absent")])
    assert "there is no Python source in" in capsys.readouterr().err
