# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""ONNX graphs of real architectures, written with onnx.helper and numpy only.

Each module builds one family with the operator patterns that the PyTorch
exporters produce for it. Weights come from a callable, so that the same code
makes the tiny test models (fixed random numbers) and the demo (pretrained).
"""
