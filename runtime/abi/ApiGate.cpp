//===- ApiGate.cpp - C entry points: the gate ---------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Modes, plans for direct calls, optional slots, issuers, and what a rank says
// about itself.
//
//===----------------------------------------------------------------------===//

#include "abi/Api.h"
#include "diagnosis/Hang.h"
#include "gate/Gate.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;

int32_t concord_gate_mode_set(concord_context *context, int32_t mode) {
  CONCORD_NOT_NULL(context);
  if (mode < CONCORD_GATE_DEFAULT || mode > CONCORD_GATE_HOLD)
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "%d is not a gate mode", mode);
  CONCORD_ENTER(*context);
  bool chosen = mode != CONCORD_GATE_DEFAULT;
  if (context->gate && Gate::needsHold(context->gate->planned())) {
    if (chosen && mode != CONCORD_GATE_HOLD)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "the loaded plan has several issuers on a rank and is "
                  "certified with gate=hold only");
    mode = CONCORD_GATE_HOLD;
  }
  context->gateChosen = chosen;
  context->gateMode = mode == CONCORD_GATE_DEFAULT ? CONCORD_GATE_CHECK : mode;
  return CONCORD_OK;
}

int32_t concord_gate_mode_get(const concord_context *context, int32_t *mode) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(mode);
  *mode = context->gateMode;
  return CONCORD_OK;
}

int32_t concord_plan_load(concord_context *context, const void *plan,
                          uint64_t bytes) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(plan);
  return guarded([&] {
    CONCORD_ENTER(*context);
    loadPlan(*context, plan, bytes, "the plan");
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_plan_load_file(concord_context *context, const char *path) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(path);
  return guarded([&] {
    CONCORD_ENTER(*context);
    // A file that cannot be read is an empty plan to the exchange, so that the
    // other ranks hear of it.
    std::string text, why;
    int fd = ::open(path, O_RDONLY | O_CLOEXEC);
    struct stat info{};
    if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
      why = fd < 0 ? std::strerror(errno) : "not a regular file";
    else {
      text.resize(size_t(info.st_size));
      size_t at = 0;
      while (at < text.size()) {
        ssize_t n = ::read(fd, text.data() + at, text.size() - at);
        if (n <= 0)
          break;
        at += size_t(n);
      }
      if (at != text.size())
        why = "it could not be read to its end";
    }
    if (fd >= 0)
      ::close(fd);
    if (!why.empty())
      text.clear();
    loadPlan(*context, text.data(), text.size(),
             path + (why.empty() ? std::string() : " (" + why + ")"));
    return int32_t(CONCORD_OK);
  });
}

/// Enter, and refuse where no plan is loaded.
template <typename Body>
static int32_t withGate(concord_context *context, const char *issuer,
                        Body body) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(issuer);
  return guarded([&] {
    CONCORD_ENTER(*context);
    if (!context->gate)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "no plan is loaded (concord_plan_load)");
    return int32_t(body(*context->gate));
  });
}

int32_t concord_slot_request(concord_context *context, const char *issuer,
                             uint64_t bits) {
  return withGate(context, issuer,
                  [&](Gate &gate) { return gate.request(issuer, bits); });
}

int32_t concord_slot_wait(concord_context *context, const char *issuer,
                          double seconds, uint64_t *round, uint64_t *bits) {
  CONCORD_NOT_NULL(round);
  CONCORD_NOT_NULL(bits);
  return withGate(context, issuer, [&](Gate &gate) {
    return gate.wait(issuer, seconds, round, bits);
  });
}

int32_t concord_issuer_attach(concord_context *context, const char *issuer) {
  return withGate(context, issuer,
                  [&](Gate &gate) { return gate.attach(issuer); });
}

int32_t concord_issuer_leave(concord_context *context, const char *issuer) {
  return withGate(context, issuer,
                  [&](Gate &gate) { return gate.leave(issuer); });
}

int32_t concord_device_synchronize(concord_context *context) {
  CONCORD_NOT_NULL(context);
  return guarded([&] {
    CONCORD_ENTER(*context);
    return waitDevice(*context);
  });
}

int32_t concord_issue_log_write(concord_context *context, const char *path) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(path);
  return guarded([&] {
    if (!context->logBlock)
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "gate mode off remembers no issues");
    std::string why = writeLog(*context->logBlock, path);
    if (!why.empty())
      return fail(CONCORD_ERROR_SYSTEM, "%s: %s", path, why.c_str());
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_state_print(concord_context *context, int32_t fd) {
  CONCORD_NOT_NULL(context);
  return guarded([&] {
    std::string text = rankText(*context);
    if (::write(fd, text.data(), text.size()) != ssize_t(text.size()))
      return fail(CONCORD_ERROR_SYSTEM, "cannot write the state: %s",
                  std::strerror(errno));
    return int32_t(CONCORD_OK);
  });
}
