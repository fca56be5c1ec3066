"""Writes checkpoints with TensorFlow's own `Saver`, from arrays by name.

Run by tests/interop/test_tensorflow_itself.py in an environment that has TensorFlow. Arguments: a
.npz file, and the prefix of the checkpoint to write; with `sliced`, the first array is a
partitioned variable.
"""

from __future__ import annotations

import sys

import numpy as np
import tensorflow.compat.v1 as tf

arrays, prefix, *options = sys.argv[1:]
tf.disable_eager_execution()
with np.load(arrays) as held:
    first = held.files[0]
    for name in held.files:
        sliced = "sliced" in options and name == first
        split = tf.fixed_size_partitioner(2) if sliced else None
        start = tf.zeros_initializer() if sliced else tf.constant_initializer(held[name])
        tf.get_variable(
            name, held[name].shape, held[name].dtype, start, partitioner=split, use_resource=False
        )
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    tf.train.Saver(sharded="sharded" in options).save(session, prefix)
