//===- Api.h - Helpers of the C entry points --------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the files behind concord.h share: null checks and versioned structs.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_ABI_API_H
#define CONCORD_RUNTIME_ABI_API_H

#include "context/Context.h"
#include "diagnosis/Error.h"
#include "engine/Engine.h"

#include <algorithm>
#include <cstring>

namespace concord::rt {

/// Return INVALID_ARGUMENT from the entry point when an argument is null.
#define CONCORD_NOT_NULL(argument)                                             \
  if (!(argument))                                                             \
  return concord::rt::fail(CONCORD_ERROR_INVALID_ARGUMENT, "%s: %s is null",   \
                           __func__, #argument)

/// Enter a context, or return THREAD.
#define CONCORD_ENTER(context)                                                 \
  concord::rt::Entry entry(context);                                           \
  if (int32_t entered = entry.status())                                        \
  return entered

/// Return INVALID_ARGUMENT where a caller has forgotten a struct's size: what
/// it has filled in would be passed over without a word. Null is no struct.
#define CONCORD_SIZED(given)                                                   \
  if ((given) && (given)->struct_size < sizeof(uint32_t))                      \
  return concord::rt::fail(CONCORD_ERROR_INVALID_ARGUMENT,                     \
                           "%s: %s->struct_size is %u: set it to sizeof "      \
                           "*%s",                                              \
                           __func__, #given, (given)->struct_size, #given)

/// A communicator that was destroyed a moment ago is still known.
inline int32_t checkAlive(const Comm &comm, const char *what) {
  return comm.destroyed ? fail(CONCORD_ERROR_INVALID_ARGUMENT,
                               "%s: communicator '%s' was destroyed already",
                               what, comm.name.c_str())
                        : CONCORD_OK;
}

/// A caller's struct, which may be older and shorter; what it lacks is zero.
template <typename T> T takeStruct(const T *given) {
  T value{};
  if (given)
    std::memcpy(&value, given, std::min<size_t>(given->struct_size, sizeof(T)));
  value.struct_size = sizeof(T);
  return value;
}

/// Fill a caller's struct as far as it goes; keeps its struct_size.
template <typename T> void giveStruct(T *target, const T &value) {
  uint32_t size = target->struct_size;
  std::memcpy(target, &value, std::min<size_t>(size, sizeof(T)));
  target->struct_size = size;
}

} // namespace concord::rt

#endif // CONCORD_RUNTIME_ABI_API_H
