# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small MLPs that carry distribution in the graph itself.

`annotated` has the multi-device annotations of IR 11 (ModelProto.configuration,
NodeProto.device_configurations); `sharded` is one rank's graph with its
collective as an operator, in one of the forms that exporters write:
com.microsoft AllReduce (whole world), or NcclAllReduce with a group_type.
All compute relu(x @ w1 + b1) @ w2 + b2 for x [batch, hidden].
"""

from .graph import FLOAT, Graph

HIDDEN, INNER = 32, 64


def _parameters(weights):
    return {"w1": weights("fc1.weight", (HIDDEN, INNER)),
            "b1": weights("fc1.bias", (INNER,)),
            "w2": weights("fc2.weight", (INNER, HIDDEN)),
            "b2": weights("fc2.bias", (HIDDEN,))}


def _mlp(g, p, collective=None):
    x = g.input("x", FLOAT, ["batch", HIDDEN])
    with g.scope("fc1"):
        y = g.node("MatMul", [x, g.weight("fc1.weight", p["w1"])])
        y = g.node("Add", [y, g.weight("fc1.bias", p["b1"])])
    y = g.node("Relu", [y])
    with g.scope("fc2"):
        y = g.node("MatMul", [y, g.weight("fc2.weight", p["w2"])])
        if collective:
            y = collective(y)
        y = g.node("Add", [y, g.weight("fc2.bias", p["b2"])])
    g.output(y, FLOAT, ["batch", HIDDEN], "y")


def plain(weights, name="mlp"):
    g = Graph(name, 17)
    _mlp(g, _parameters(weights))
    return g.model()


def sharded(weights, rank, world, form="AllReduce", group_type=4):
    """Rank `rank` of `world`: the columns of w1 and the rows of w2."""
    p = dict(_parameters(weights))
    part = slice(rank * INNER // world, (rank + 1) * INNER // world)
    p["w1"], p["b1"], p["w2"] = p["w1"][:, part], p["b1"][part], p["w2"][part]
    g = Graph(f"mlp_rank_{rank}", 17)
    attributes = {"group_type": group_type} if form.startswith("Nccl") else {}
    _mlp(g, p, lambda y: g.node(form, [y], domain="com.microsoft",
                                **attributes))
    return g.model([("com.microsoft", 1)])


def annotated(weights, devices=2):
    """IR 11: fc1 split by columns, fc2 by rows, over one configuration."""
    g = Graph("mlp_annotated", 23, ir_version=11)
    _mlp(g, _parameters(weights))
    model = g.model()
    configuration = model.configuration.add()
    configuration.name = "tensor_parallel"
    configuration.num_devices = devices

    def shard(node, tensor, axis):
        spec = node.device_configurations[0].sharding_spec.add()
        spec.tensor_name = tensor
        spec.device.extend(range(devices))
        dim = spec.sharded_dim.add()
        dim.axis = axis
        simple = dim.simple_sharding.add()
        simple.num_shards = devices

    for node in model.graph.node:
        if node.op_type not in ("MatMul", "Add", "Relu"):
            continue
        first = node.name.startswith("/fc1") or node.op_type == "Relu"
        if not first and node.op_type == "Add":
            continue
        node.device_configurations.add().configuration_id = "tensor_parallel"
        if first:
            if node.op_type != "Relu":
                shard(node, node.input[1],
                      1 if node.op_type == "MatMul" else 0)
            shard(node, node.output[0], 1)
        else:  # the second MatMul: its product is summed over the devices
            shard(node, node.input[0], 1)
            shard(node, node.input[1], 0)
    return model
