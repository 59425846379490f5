//===- Rounds.h - The order of several issuers in a round -------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to the order library.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_ROUNDS_H
#define CONCORD_ANALYSIS_ORDER_ROUNDS_H

#include "concord/order/Certificate.h"

namespace concord::order {

/// The rounds of a plan give every issue that needs a turn one, keep each
/// program's own order, put decisions before what they decide, and have no
/// cycle together with what the other ranks issue.
bool checkRounds(const plan::Plan &plan, const OrderProblem &problem,
                 std::vector<Finding> &faults);

} // namespace concord::order

#endif // CONCORD_ANALYSIS_ORDER_ROUNDS_H
