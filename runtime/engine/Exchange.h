//===- Exchange.h - The same record from every member -----------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How members of a communicator compare what they have before they go on: an
// all_gather of one record each, on stream NULL.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ENGINE_EXCHANGE_H
#define CONCORD_RUNTIME_ENGINE_EXCHANGE_H

#include "diagnosis/Error.h"
#include "engine/Engine.h"

#include <vector>

namespace concord::rt {

/// `mine` of every member, in group order. Throws Error.
template <typename T> std::vector<T> tellAll(Comm &comm, const T &mine) {
  std::vector<T> all(size_t(comm.size));
  Op op;
  OpRequest &r = op.request;
  r.kind = Kind::AllGather;
  r.dtype = DType::U8;
  r.chunk = sizeof(T);
  r.in = {const_cast<T *>(&mine), 1, sizeof(T), sizeof(T)};
  r.out = {all.data(), 1, sizeof(T), sizeof(T) * all.size()};
  int32_t status = prepare(op, comm);
  if (status == CONCORD_OK)
    status = runNow(op);
  if (status != CONCORD_OK)
    throw Error(status, lastError());
  return all;
}

/// While it lives, operations are under another deadline than CONCORD_TIMEOUT,
/// which may be "for ever": that of bring-up, for instance.
class Deadline {
public:
  Deadline(Context &context, double seconds)
      : context(context), kept(context.timeoutSeconds) {
    context.timeoutSeconds = seconds;
  }
  ~Deadline() { context.timeoutSeconds = kept; }
  Deadline(const Deadline &) = delete;

private:
  Context &context;
  double kept;
};

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ENGINE_EXCHANGE_H
