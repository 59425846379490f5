#!/usr/bin/env python3
# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the test models of this folder, and larger ones on demand.

  generate.py                     write every model that is checked in
  generate.py --check             say which of them differ from what this writes
  generate.py gpt2 -o big.onnx --layers 12 --hidden 768 --heads 12 ...
                                  one model of any size; weights above 1.5 GB, or
                                  with --external, lie in big.onnx.data

Only onnx.helper and numpy are used; weights are fixed random numbers.
"""

import argparse
import dataclasses
import os
import sys

import onnx

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)

from graphs import bert, gpt2, llama, mlp, resnet  # noqa: E402
from graphs.graph import random_weights, save  # noqa: E402


def checked_in():
    """File name -> a function that builds the model."""
    w = random_weights
    llama_like = lambda name, opset=17, seq="seq", **options: (
        lambda: llama.build(llama.Config(**options), w("llama"), opset,
                            seq=seq, name=name))
    models = {
        "bert_tiny": lambda: bert.build(bert.Config(), w("bert"), 17),
        # All shapes fixed: compiles without --dim.
        "bert_tiny_static": lambda: bert.build(bert.Config(), w("bert"), 17,
                                               batch=1, seq=8),
        # The same weights; LayerNorm as it was exported before opset 17.
        "bert_tiny_op13": lambda: bert.build(bert.Config(), w("bert"), 13),
        "gpt2_tiny": lambda: gpt2.build(gpt2.Config(), w("gpt2"), 17),
        "gpt2_gemm_tiny": lambda: gpt2.build(gpt2.Config(gemm=True),
                                             w("gpt2"), 14),
        "llama_tiny": llama_like("llama"),
        "llama_tiny_op23": llama_like("llama", 23, native=True),
        "llama_tiny_decode": llama_like("llama_decode", seq=1,
                                        cache="growing"),
        "llama_tiny_static": llama_like("llama_static", seq=1,
                                        cache="static"),
        "mixtral_tiny": lambda: llama.build(
            llama.Config(experts=4, inner=16, vocab=160), w("mixtral"), 17,
            name="mixtral"),
        "mixtral_tiny_static": lambda: llama.build(
            llama.Config(experts=4, inner=16, vocab=160), w("mixtral"), 17,
            batch=2, seq=8, name="mixtral_static"),
        "mixtral_unrolled_tiny": lambda: llama.build(
            llama.Config(experts=4, inner=16, vocab=160, expert_style="unrolled"),
            w("mixtral"), 18, name="mixtral_unrolled"),
        "resnet_tiny": lambda: resnet.build(resnet.Config(), w("resnet"), 13),
        "mlp_tiny": lambda: mlp.plain(w("mlp")),
        "mlp_annotated": lambda: mlp.annotated(w("mlp")),
    }
    for rank in range(2):
        models[f"mlp_allreduce_{rank}"] = (
            lambda rank=rank: mlp.sharded(w("mlp"), rank, 2))
        models[f"mlp_nccl_{rank}"] = (
            lambda rank=rank: mlp.sharded(w("mlp"), rank, 2, "NcclAllReduce"))
    return models


FAMILIES = {"bert": bert, "gpt2": gpt2, "llama": llama, "mixtral": llama,
            "resnet": resnet}
FAMILY_DEFAULTS = {
    "bert": dict(hidden=768, intermediate=3072, layers=12, heads=12,
                 vocab=30522, positions=512),
    "gpt2": dict(hidden=768, inner=3072, layers=12, heads=12, vocab=50257,
                 positions=1024),
    "llama": dict(hidden=2048, inner=5632, layers=22, heads=32, kv_heads=4,
                  vocab=32000),
    "mixtral": dict(hidden=1024, inner=3584, layers=8, heads=16, kv_heads=4,
                    vocab=32000, experts=8),
    "resnet": dict(size=224, channels=(64, 128, 256, 512), classes=1000),
}


def dimension(text):
    return int(text) if text.lstrip("-").isdigit() else text


def on_demand(arguments):
    family = arguments[0]
    module, defaults = FAMILIES[family], FAMILY_DEFAULTS[family]
    parser = argparse.ArgumentParser(prog=f"generate.py {family}")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--opset", type=int, default=17)
    parser.add_argument("--batch", type=dimension, default="batch")
    parser.add_argument("--external", action="store_true")
    if family != "resnet":
        parser.add_argument("--seq", type=dimension, default="seq")
    for field in dataclasses.fields(module.Config):
        value = defaults.get(field.name, field.default)
        option = "--" + field.name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(option, action="store_true")
        elif isinstance(value, tuple):
            parser.add_argument(option, type=int, nargs="+", default=value)
        else:
            parser.add_argument(option, type=type(value), default=value)
    options = parser.parse_args(arguments[1:])
    config = module.Config(**{f.name: getattr(options, f.name)
                              for f in dataclasses.fields(module.Config)})
    rest = {"seq": options.seq} if family != "resnet" else {}
    model = module.build(config, random_weights(family), options.opset,
                         batch=options.batch, name=family, **rest)
    total = sum(len(t.raw_data) for t in model.graph.initializer)
    save(model, options.output, options.external or total > 1.5e9)
    print(f"{options.output}: {len(model.graph.node)} nodes, "
          f"{total / 1e6:.1f} MB of weights")


def main():
    if sys.argv[1:2] and sys.argv[1] in FAMILIES:
        return on_demand(sys.argv[1:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--out", default=HERE, help="folder to write to")
    options = parser.parse_args()
    stale = []
    for name, build in checked_in().items():
        path = os.path.join(options.out, f"{name}.onnx")
        model = build()
        if not any(o.domain for o in model.opset_import):
            onnx.checker.check_model(model, full_check=True)
        data = model.SerializeToString(deterministic=True)
        if options.check:
            with open(path, "rb") as file:
                if file.read() != data:
                    stale.append(name)
            continue
        with open(path, "wb") as file:
            file.write(data)
        print(f"{name}.onnx: opset {model.opset_import[0].version}, "
              f"{len(model.graph.node)} nodes, {len(data)} bytes")
    if stale:
        sys.exit("differ from what generate.py writes: " + ", ".join(stale))
    return None


if __name__ == "__main__":
    main()
