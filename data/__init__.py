"""The data: readers, pipelines and the embedded samples.

Each module is imported by its own name (`from towers.data.images import cifar10`), so that a
command that only downloads does not load TensorFlow.
"""
