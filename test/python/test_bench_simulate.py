# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""When ./run bench simulate judges a program: between two calibrations that agree."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "test", "bench", "simulate"))

from bench_simulate import TURNS, between_calibrations  # noqa: E402


def turns(speeds, measured=100.0):
    """Calibrations that predict `speeds`, one after the other."""
    left = list(speeds)
    return between_calibrations(left.pop(0), lambda: left.pop(0), lambda _: measured,
                                lambda speed: speed)


def test_a_steady_host_is_measured_once():
    assert turns([100.0, 104.0]) == (104.0, 102.0, 100.0, 1, True)


def test_a_change_is_measured_again_by_the_new_calibrations():
    assert turns([100.0, 150.0, 148.0]) == (148.0, 149.0, 100.0, 2, True)


def test_what_is_never_steady_is_not_judged():
    *_, count, steady = turns([100.0, 150.0] * TURNS)
    assert (count, steady) == (TURNS, False)


def test_what_was_measured_decides_nothing():
    # Far off, and judged: the error has to show.
    assert turns([100.0, 101.0], measured=1000.0)[3:] == (1, True)
    assert turns([100.0, 150.0, 149.0], measured=125.0)[3:] == (2, True)
