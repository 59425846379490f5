# Part of the Concord project, under the Apache License v2.0 with LLVM
# Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lit's configuration. CONCORD_BUILD is the build folder. With
CONCORD_CHECK_ROUNDTRIP set, every comm-opt run also prints its result in generic
form and parses that again."""

import os

import lit.formats

config.name = "concord"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".hlo"]
config.test_source_root = os.path.dirname(__file__)
root = os.path.dirname(os.path.dirname(config.test_source_root))
build = os.environ.get("CONCORD_BUILD", os.path.join(root, "build"))
config.test_exec_root = os.path.join(build, "lit")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(build, "bin"), "/usr/lib/llvm-22/bin", os.environ["PATH"]])
config.environment["FILECHECK_OPTS"] = "-enable-var-scope"
config.substitutions.append(("%models", os.path.join(root, "test", "models")))
config.substitutions.append(("%topologies", os.path.join(root, "test", "topologies")))
# A calibration of this machine would change what passes decide.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.test_exec_root, "no-cache")
config.substitutions.append(("%plugin", os.path.join(build, "lib", "ConcordPlugin.so")))
config.substitutions.append(("%mlir-opt", "/usr/lib/llvm-22/bin/mlir-opt"))
if os.environ.get("CONCORD_CHECK_ROUNDTRIP"):
    # The tool, not a file that is named after it.
    config.substitutions.append((r"(?<![\w/.-])comm-opt(?![\w/.-])",
                                 "comm-opt --verify-roundtrip"))
