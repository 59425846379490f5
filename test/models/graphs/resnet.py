# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ResNet with basic blocks, BatchNormalization not folded into Conv.

Input pixel_values [batch, 3, size, size] float; output logits [batch, classes].
"""

import dataclasses

from .graph import FLOAT, Graph


@dataclasses.dataclass
class Config:
    size: int = 32
    channels: tuple = (16, 32)
    blocks: int = 2
    classes: int = 16
    epsilon: float = 1e-5


def build(config, weights, opset=13, batch="batch", name="resnet"):
    """weights(name, shape) gives a float32 array; filters are [out, in, h, w]."""
    c, g = config, Graph(name, opset)

    def w(key, *shape):
        return g.weight(key, weights(key, shape))

    def conv(x, key, n_in, n_out, kernel, stride):
        with g.scope(key.rsplit(".", 1)[-1]):
            return g.node("Conv", [x, w(f"{key}.weight", n_out, n_in, kernel,
                                        kernel)],
                          dilations=[1, 1], group=1,
                          kernel_shape=[kernel] * 2,
                          pads=[kernel // 2] * 4, strides=[stride] * 2)

    def norm(x, key, n):
        with g.scope(key.rsplit(".", 1)[-1]):
            return g.node("BatchNormalization", [
                x, w(f"{key}.weight", n), w(f"{key}.bias", n),
                w(f"{key}.running_mean", n), w(f"{key}.running_var", n)],
                epsilon=c.epsilon, momentum=0.9)

    x = g.input("pixel_values", FLOAT, [batch, 3, c.size, c.size])
    width = c.channels[0]
    x = g.node("Relu", [norm(conv(x, "conv1", 3, width, 7, 2), "bn1", width)])
    with g.scope("maxpool"):
        x = g.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1],
                   strides=[2, 2], ceil_mode=0)
    for stage, n in enumerate(c.channels):
        for block in range(c.blocks):
            key = f"layer{stage + 1}.{block}"
            stride = 2 if stage and not block else 1
            with g.scope(f"layer{stage + 1}"), g.scope(str(block)):
                y = conv(x, f"{key}.conv1", width, n, 3, stride)
                y = g.node("Relu", [norm(y, f"{key}.bn1", n)])
                y = norm(conv(y, f"{key}.conv2", n, n, 3, 1), f"{key}.bn2", n)
                if stride != 1 or width != n:
                    with g.scope("downsample"):
                        x = conv(x, f"{key}.downsample.0", width, n, 1, stride)
                        x = norm(x, f"{key}.downsample.1", n)
                x = g.node("Relu", [g.node("Add", [y, x])])
            width = n
    with g.scope("avgpool"):
        x = g.node("GlobalAveragePool", [x])
    x = g.node("Flatten", [x], axis=1)
    with g.scope("fc"):
        matrix = weights("fc.weight", (width, c.classes))
        x = g.node("Gemm", [x, g.weight("fc.weight", matrix.T),
                            w("fc.bias", c.classes)],
                   alpha=1.0, beta=1.0, transB=1)
    g.output(x, FLOAT, [batch, c.classes], "logits")
    return g.model()
