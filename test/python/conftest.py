# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Compiles what the selected model tests need on all cores, ahead of them."""

import model_runs


# Tests that look at the plan only.
PLANS = ("test_two_all_reduces_a_layer", "test_one_rank_does_not_communicate")


def pytest_collection_finish(session):
    if session.config.option.collectonly or not model_runs.built():
        return
    programs, plans = [], []
    for item in session.items:
        parameters = getattr(item, "callspec", None)
        if item.path.name != "test_models.py" or not parameters:
            continue
        name = parameters.params.get("name")
        pair = (name, parameters.params.get("mesh", "tp=1"))
        if name:
            (plans if item.originalname in PLANS else programs).append(pair)
    model_runs.prefetch(programs, plans)


def pytest_sessionfinish():
    model_runs.cancel()
