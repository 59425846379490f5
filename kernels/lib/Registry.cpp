//===- Registry.cpp - The kernel C ABI and the table of kernels -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// concord_kernel_*: descriptions in, handles out. No exception leaves this
// file.
//
//===----------------------------------------------------------------------===//

#include "Kernel.h"
#include "Target.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace concord::kernels {

namespace {
thread_local char lastError[512] = "";
thread_local uint64_t failures = 0;
} // namespace

int32_t setLastError(Status code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(lastError, sizeof lastError, format, arguments);
  va_end(arguments);
  ++failures;
  return code;
}

int32_t Kernel::pack(const void *, void *) const {
  return setLastError(kInvalidArgument, "this kernel packs no input");
}

int32_t Kernel::step(const concord_fused_step &) const {
  return setLastError(kNotSupported, "this kernel has no steps");
}

void Registry::add(std::string_view name, Factory factory) {
  auto at = std::lower_bound(
      items.begin(), items.end(), name,
      [](const Item &item, std::string_view key) { return item.name < key; });
  if (at != items.end() && at->name == name) {
    fprintf(stderr, "concord: kernel '%.*s' is registered twice\n",
            int(name.size()), name.data());
    abort();
  }
  items.insert(at, {name, factory});
}

Factory Registry::find(std::string_view name) const {
  auto at = std::lower_bound(
      items.begin(), items.end(), name,
      [](const Item &item, std::string_view key) { return item.name < key; });
  return at != items.end() && at->name == name ? at->factory : nullptr;
}

std::vector<std::string_view> Registry::names() const {
  std::vector<std::string_view> result;
  for (const Item &item : items)
    result.push_back(item.name);
  return result;
}

#define CONCORD_KERNEL_FAMILY(name) void register##name(Registry &);
#include "Families.inc"
#undef CONCORD_KERNEL_FAMILY

const Registry &Registry::all() {
  static const Registry registry = [] {
    Registry r;
#define CONCORD_KERNEL_FAMILY(name) register##name(r);
#include "Families.inc"
#undef CONCORD_KERNEL_FAMILY
    return r;
  }();
  return registry;
}

} // namespace concord::kernels

using namespace concord::kernels;

struct concord_kernel {
  std::unique_ptr<Kernel> kernel;
  uint64_t identity = 0;
};

extern "C" {

int32_t concord_kernel_create(const char *description, concord_kernel **out,
                              concord_kernel_info *info) {
  if (!description || !out)
    return setLastError(kInvalidArgument,
                        "concord_kernel_create: null argument");
  *out = nullptr;
  try {
    size_t length = strnlen(description, (1 << 16) + 1);
    Description parsed = Description::parse({description, length});
    Factory factory = Registry::all().find(parsed.name());
    if (!factory)
      notSupported("there is no kernel called '" + parsed.name() + "'");
    auto handle = std::make_unique<concord_kernel>();
    handle->kernel = factory(parsed);
    handle->identity = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; ++i)
      handle->identity =
          (handle->identity ^ static_cast<unsigned char>(description[i])) *
          0x100000001b3;
    parsed.requireAllRead();
    if (info) {
      concord_kernel_info full = {};
      full.struct_size = info->struct_size;
      full.num_inputs = handle->kernel->numInputs;
      full.num_outputs = handle->kernel->numOutputs;
      full.packed_input = handle->kernel->packedInput;
      full.workspace_bytes = handle->kernel->workspaceBytes;
      full.packed_weight_bytes = handle->kernel->packedWeightBytes;
      memcpy(info, &full,
             std::min<size_t>(info->struct_size, sizeof(concord_kernel_info)));
    }
    *out = handle.release();
    return kOk;
  } catch (const KernelError &error) {
    return setLastError(error.code, "%s", error.what());
  } catch (const std::bad_alloc &) {
    return setLastError(kOutOfMemory, "out of memory while making a kernel");
  } catch (const std::exception &error) {
    return setLastError(kInvalidArgument, "%s", error.what());
  }
}

void concord_kernel_destroy(concord_kernel *kernel) { delete kernel; }

int32_t concord_kernel_pack(const concord_kernel *kernel, const void *weight,
                            void *packed) {
  if (!kernel || !weight || !packed)
    return setLastError(kInvalidArgument, "concord_kernel_pack: null argument");
  return kernel->kernel->pack(weight, packed);
}

int32_t concord_kernel_run(const concord_kernel *kernel, void *const *pointers,
                           void *workspace) {
  return kernel->kernel->run(pointers, workspace);
}

int32_t concord_kernel_fused(const concord_kernel *kernel,
                             concord_fused_info *info) {
  if (!kernel || !info)
    return setLastError(kInvalidArgument,
                        "concord_kernel_fused: null argument");
  const concord_fused_info *fused = kernel->kernel->fused();
  if (!fused)
    return setLastError(kNotSupported,
                        "this kernel is not one with a collective");
  concord_fused_info full = *fused;
  full.struct_size = info->struct_size;
  full.identity = kernel->identity;
  memcpy(info, &full,
         std::min<size_t>(info->struct_size, sizeof(concord_fused_info)));
  return kOk;
}

int32_t concord_kernel_step(const concord_kernel *kernel,
                            const concord_fused_step *step) {
  return kernel->kernel->step(*step);
}

const char *concord_kernel_target(void) { return targetName(target()); }

const char *concord_kernel_last_error(void) { return lastError; }

uint64_t concord_kernel_failures(void) { return failures; }
}
