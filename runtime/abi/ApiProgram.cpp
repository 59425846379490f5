//===- ApiProgram.cpp - C entry points: programs, the gate --------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Loading, binding and running programs; what generated code calls; the gate.
//
//===----------------------------------------------------------------------===//

#include "abi/Api.h"
#include "gate/Gate.h"
#include "program/Program.h"

#include <algorithm>

using namespace concord;
using namespace concord::rt;

// Kernels call back while they run, so that transfers make progress under
// compute; a library without kernels has no hook.
extern "C" {
__attribute__((weak)) void concord_kernel_set_poll_hook(void (*hook)(void *),
                                                        void *context);
__attribute__((weak)) const char *concord_kernel_last_error(void);
__attribute__((weak)) uint64_t concord_kernel_failures(void);
}

static void pollHook(void *context) {
  poll(*static_cast<Context *>(context), /*computing=*/true);
}

// A step holds the context for as long as it runs; what it calls is inside
// already. Only THREAD_MULTIPLE, where a step cannot hold a lock that its own
// calls take, locks for each call.
namespace {
class IssueLock {
public:
  explicit IssueLock(Context &context)
      : context(context),
        locks(context.threadLevel == CONCORD_THREAD_MULTIPLE) {
    if (locks)
      context.mutex.lock();
  }
  ~IssueLock() {
    if (locks)
      context.mutex.unlock();
  }

private:
  Context &context;
  bool locks;
};
} // namespace

int32_t concord_issue(concord_context *context, uint32_t site,
                      const concord_buffer *buffers, uint32_t numBuffers) {
  CONCORD_NOT_NULL(context);
  IssueLock lock(*context);
  return issueSite(*context, site, buffers, numBuffers);
}

int32_t concord_site_wait(concord_context *context, uint32_t site) {
  CONCORD_NOT_NULL(context);
  IssueLock lock(*context);
  return waitSite(*context, site);
}

int32_t concord_program_load(concord_context *context, const char *path,
                             const concord_program_options *options,
                             concord_program **out) {
  CONCORD_NOT_NULL(context);
  CONCORD_NOT_NULL(path);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(options);
  *out = nullptr;
  return guarded([&] {
    CONCORD_ENTER(*context);
    *out = loadProgram(*context, path, takeStruct(options));
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_program_issuer(concord_program *program, const char *issuer,
                               concord_program **out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(issuer);
  CONCORD_NOT_NULL(out);
  *out = nullptr;
  return guarded([&] {
    std::string known;
    auto take = [&](concord_program &one) {
      const plan::Program &planned = *one.planned;
      known += (known.empty() ? "'" : ", '") +
               (planned.issuer.empty() ? planned.name : planned.issuer) + "'";
      if (!*out && (planned.issuer == issuer || planned.name == issuer))
        *out = &one;
    };
    take(*program);
    for (auto &other : program->others)
      take(*other);
    if (*out)
      return int32_t(CONCORD_OK);
    return fail(
        CONCORD_ERROR_NOT_FOUND, "%s has no issuer '%s' on rank %d; it has %s",
        program->path.c_str(), issuer, program->context->rank, known.c_str());
  });
}

int32_t concord_program_unload(concord_program *program) {
  if (!program)
    return CONCORD_OK;
  return guarded([&] {
    Context &context = *program->context;
    CONCORD_ENTER(context);
    auto idle = [&](const concord_program &one) {
      for (const concord_comm *comm : one.comms)
        if (comm->head || !comm->messages.empty())
          return fail(CONCORD_ERROR_BUSY,
                      "operations of program '%s' are in flight",
                      one.name.c_str());
      for (const Context::Running &each : context.running)
        if (each.program == &one)
          return fail(CONCORD_ERROR_BUSY, "a step of program '%s' is running",
                      one.name.c_str());
      return int32_t(CONCORD_OK);
    };
    if (program->gated && context.gate && context.gate->busy())
      return fail(CONCORD_ERROR_BUSY,
                  "a thread waits for a turn or a slot of program '%s'",
                  program->name.c_str());
    for (const concord_program *each : context.programs)
      for (const auto &other : each->others)
        if (other.get() == program)
          return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                      "program '%s' is released with '%s', which it was loaded "
                      "with",
                      program->name.c_str(), each->name.c_str());
    if (int32_t status = idle(*program))
      return status;
    for (const auto &other : program->others)
      if (int32_t status = idle(*other))
        return status;
    dropProgram(program);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_program_info_query(const concord_program *program,
                                   concord_program_info *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(out);
  concord_program_info value{};
  value.name = program->name.c_str();
  value.world = program->context->world;
  value.arena_bytes = program->arenaBytes;
  value.weight_bytes = program->weights.mappedBytes();
  value.num_sites = uint32_t(program->sites.size());
  value.num_kernels = uint32_t(
      std::count_if(program->kernels.begin(), program->kernels.end(),
                    [](const concord_kernel *kernel) { return kernel; }));
  value.digest = program->digest.c_str();
  value.meta_json = program->metaText.c_str();
  giveStruct(out, value);
  return CONCORD_OK;
}

int32_t concord_program_num_inputs(const concord_program *program,
                                   uint32_t *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  *out = uint32_t(program->inputs.size());
  return CONCORD_OK;
}

int32_t concord_program_num_outputs(const concord_program *program,
                                    uint32_t *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  *out = uint32_t(program->outputs.size());
  return CONCORD_OK;
}

static int32_t giveEntry(const std::vector<EntryInfo> &entries, uint32_t index,
                         concord_entry *out, const char *what) {
  CONCORD_SIZED(out);
  if (index >= entries.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "the program has %zu %s",
                entries.size(), what);
  const EntryInfo &entry = entries[index];
  concord_entry value{};
  value.name = entry.name.c_str();
  value.dtype = int32_t(entry.dtype);
  value.rank = uint32_t(entry.localShape.size());
  value.global_shape = entry.globalShape.data();
  value.local_shape = entry.localShape.data();
  value.local_bytes = entry.bytes;
  value.arena_offset = entry.arenaOffset;
  value.sharding_json = entry.sharding.c_str();
  giveStruct(out, value);
  return CONCORD_OK;
}

int32_t concord_program_input(const concord_program *program, uint32_t index,
                              concord_entry *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  return giveEntry(program->inputs, index, out, "inputs");
}

int32_t concord_program_output(const concord_program *program, uint32_t index,
                               concord_entry *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  return giveEntry(program->outputs, index, out, "outputs");
}

static int32_t bind(concord_program &program, std::vector<void *> &bound,
                    const std::vector<void *> &own, uint32_t index, void *data,
                    const char *what) {
  CONCORD_ENTER(*program.context);
  if (index >= bound.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "the program has %zu %s",
                bound.size(), what);
  bound[index] = data ? data : own[index];
  return CONCORD_OK;
}

int32_t concord_program_bind_input(concord_program *program, uint32_t index,
                                   const void *data) {
  CONCORD_NOT_NULL(program);
  return bind(*program, program->inputData, program->ownInputs, index,
              const_cast<void *>(data), "inputs");
}

int32_t concord_program_bind_output(concord_program *program, uint32_t index,
                                    void *data) {
  CONCORD_NOT_NULL(program);
  int32_t status = bind(*program, program->outputData, program->ownOutputs,
                        index, data, "outputs");
  if (status == CONCORD_OK)
    program->lastOutputs[index] = program->outputData[index];
  return status;
}

int32_t concord_program_bind_state(concord_program *program, uint32_t input,
                                   uint32_t output) {
  CONCORD_NOT_NULL(program);
  return guarded([&] {
    CONCORD_ENTER(*program->context);
    if (input >= program->inputs.size() || output >= program->outputs.size())
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "the program has %zu inputs and %zu outputs",
                  program->inputs.size(), program->outputs.size());
    const EntryInfo &in = program->inputs[input];
    const EntryInfo &out = program->outputs[output];
    bool grows = !in.globalExtents.empty() || !out.globalExtents.empty();
    if (in.dtype != out.dtype ||
        (grows ? in.globalShape.size() != out.globalShape.size()
               : in.bytes != out.bytes))
      return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                  "state '%s' and '%s' differ in dtype or size",
                  in.name.c_str(), out.name.c_str());
    for (auto [i, o] : program->state)
      if (i == input || o == output)
        return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                    "'%s' or '%s' is bound to another state already",
                    in.name.c_str(), out.name.c_str());
    if (grows)
      growStateBuffers(*program, input, output);
    program->state.emplace_back(input, output);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_program_input_data(concord_program *program, uint32_t index,
                                   void **out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  if (index >= program->inputData.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "the program has %zu inputs",
                program->inputData.size());
  *out = program->inputData[index];
  return CONCORD_OK;
}

int32_t concord_program_output_data(concord_program *program, uint32_t index,
                                    void **out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  if (index >= program->lastOutputs.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT, "the program has %zu outputs",
                program->lastOutputs.size());
  *out = program->lastOutputs[index];
  return CONCORD_OK;
}

int32_t concord_program_num_dims(const concord_program *program,
                                 uint32_t *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  *out = uint32_t(program->dims.size());
  return CONCORD_OK;
}

int32_t concord_program_dim(const concord_program *program, uint32_t index,
                            concord_dim *out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  CONCORD_SIZED(out);
  if (index >= program->dims.size())
    return fail(CONCORD_ERROR_INVALID_ARGUMENT,
                "the program has %zu bounded dimensions", program->dims.size());
  concord_dim value{};
  value.name = program->dims[index].name.c_str();
  value.min = program->dims[index].min;
  value.max = program->dims[index].max;
  value.size = program->dimSizes[index];
  giveStruct(out, value);
  return CONCORD_OK;
}

int32_t concord_program_bind_shape(concord_program *program, uint32_t index,
                                   const int64_t *shape, uint32_t rank) {
  CONCORD_NOT_NULL(program);
  if (rank)
    CONCORD_NOT_NULL(shape);
  return guarded([&] {
    CONCORD_ENTER(*program->context);
    if (index >= program->inputs.size())
      return fail(CONCORD_ERROR_INVALID_ARGUMENT, "the program has %zu inputs",
                  program->inputs.size());
    return bindShape(*program, index, {shape, rank}, "input");
  });
}

static int32_t prepare(concord_program &program) {
  return guarded([&] {
    prepareProgram(program);
    return int32_t(CONCORD_OK);
  });
}

int32_t concord_program_prepare(concord_program *program) {
  CONCORD_NOT_NULL(program);
  CONCORD_ENTER(*program->context);
  return prepare(*program);
}

/// The step itself, entered.
static int32_t step(concord_program &program) {
  Context &context = *program.context;
  {
    IssueLock lock(context);
    // Issuers of one rank run at the same time, each in its own thread.
    for (const Context::Running &each : context.running)
      if (each.program == &program || !program.gated || !each.program->gated ||
          each.thread == threadId())
        return fail(CONCORD_ERROR_BUSY, "a step of program '%s' is running",
                    each.program->name.c_str());
    context.running.push_back({threadId(), &program});
  }
  auto finish = [&] {
    IssueLock lock(context);
    std::erase_if(context.running, [&](const Context::Running &each) {
      return each.program == &program;
    });
  };
  // Other shapes than in the last step; else nothing happens here.
  if (!program.dims.empty())
    if (int32_t status = prepare(program)) {
      finish();
      return status;
    }
  if (concord_kernel_set_poll_hook)
    concord_kernel_set_poll_hook(pollHook, &context);
  auto failures = [] {
    return concord_kernel_failures ? concord_kernel_failures() : 0;
  };
  const uint64_t before = failures();
  int32_t status = program.step(&program.args);
  // What the runtime fails with has its words already; the generated code only
  // hands on what a kernel has returned.
  if (status != CONCORD_OK && status != CONCORD_ERROR_KERNEL &&
      failures() != before)
    status = fail(CONCORD_ERROR_KERNEL, "program '%s': %s",
                  program.name.c_str(), concord_kernel_last_error());
  if (concord_kernel_set_poll_hook)
    concord_kernel_set_poll_hook(nullptr, nullptr);
  finish();
  if (status != CONCORD_OK)
    return status;
  for (size_t i = 0; i < program.outputData.size(); ++i)
    program.lastOutputs[i] = program.outputData[i];
  for (auto [input, output] : program.state)
    std::swap(program.inputData[input], program.outputData[output]);
  program.stateMoved = !program.dims.empty() && !program.state.empty();
  return CONCORD_OK;
}

int32_t concord_program_step(concord_program *program) {
  CONCORD_NOT_NULL(program);
  Context &context = *program->context;
  if (context.threadLevel == CONCORD_THREAD_MULTIPLE)
    return step(*program);
  CONCORD_ENTER(context);
  return step(*program);
}

int32_t concord_program_plan_json(const concord_program *program,
                                  const char **out) {
  CONCORD_NOT_NULL(program);
  CONCORD_NOT_NULL(out);
  return guarded([&] {
    auto &json = const_cast<concord_program *>(program)->planJson;
    if (json.empty())
      json = plan::toJson(program->plan);
    *out = json.c_str();
    return CONCORD_OK;
  });
}
