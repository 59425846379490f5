//===- HostFindings.h - What hosts tell alone -------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ANALYSIS_ORDER_EVIDENCE_HOSTFINDINGS_H
#define CONCORD_ANALYSIS_ORDER_EVIDENCE_HOSTFINDINGS_H

#include "concord/order/Evidence.h"

namespace concord::order::evidence {

/// Ranks that have thrown, where no finding tells it already. What a library
/// says of a peer that is gone is a consequence of what that peer has thrown.
void exceptions(const Job &job, Diagnosis &out);

/// Without issue records: most ranks stand in one place, waiting for the
/// others, and a few do not. Places are told apart by the function of the
/// program, since ranks wait in one collective at different depths.
void stacksAlone(const Job &job, Diagnosis &out);

} // namespace concord::order::evidence

#endif // CONCORD_ANALYSIS_ORDER_EVIDENCE_HOSTFINDINGS_H
