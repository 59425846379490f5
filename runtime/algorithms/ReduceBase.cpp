//===- ReduceBase.cpp - Reductions for one processor class -*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The reductions for any machine of the architecture.
//
//===----------------------------------------------------------------------===//

#include "algorithms/Reduce.h"

namespace concord::rt::base {
#include "algorithms/ReduceBody.inc"
} // namespace concord::rt::base
