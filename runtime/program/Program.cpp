//===- Program.cpp - Loading and running an artefact ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Load: the shared object, its metadata, plan, kernels and weights; buffers;
// and then one exchange in which every rank says whether it has succeeded and
// what its plan's digest is. A rank that fails takes part in the exchange too,
// so no rank is left waiting for one that will not come.
//
//===----------------------------------------------------------------------===//

#include "program/Program.h"
#include "diagnosis/Error.h"
#include "diagnosis/Watchdog.h"
#include "engine/Engine.h"
#include "gate/Gate.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;
using nlohmann::json;

// The kernels are a room of their own; a library without them loads programs
// that need none.
extern "C" {
__attribute__((weak)) int32_t concord_kernel_create(const char *,
                                                    concord_kernel **,
                                                    concord_kernel_info *);
__attribute__((weak)) void concord_kernel_destroy(concord_kernel *);
__attribute__((weak)) const char *concord_kernel_target(void);
__attribute__((weak)) const char *concord_kernel_last_error(void);
}

namespace {

[[noreturn]] void corrupt(const concord_program &program,
                          const std::string &what) {
  raise(CONCORD_ERROR_CORRUPT, "%s: %s", program.path.c_str(), what.c_str());
}

/// A field of the metadata, of the right type.
template <typename T>
T field(const concord_program &program, const json &object, const char *key) {
  auto it = object.find(key);
  if (it == object.end())
    corrupt(program, std::string("the metadata has no '") + key + "'");
  try {
    return it->get<T>();
  } catch (const json::exception &) {
    corrupt(program,
            std::string("the metadata's '") + key + "' has the wrong type");
  }
}

std::vector<int64_t> shapeOf(const concord_program &program, const json &object,
                             const char *key) {
  auto shape = field<std::vector<int64_t>>(program, object, key);
  for (int64_t extent : shape)
    if (extent < 0)
      corrupt(program, std::string("the metadata's '") + key +
                           "' has a negative dimension");
  return shape;
}

std::vector<Extent> extentsOf(const concord_program &program,
                              const json &object, const char *key,
                              size_t rank) {
  std::vector<Extent> extents;
  if (!object.contains(key))
    return extents;
  for (const auto &text :
       field<std::vector<std::string>>(program, object, key)) {
    auto extent = Extent::parse(text, program.dims.size());
    if (!extent)
      corrupt(program, "the metadata's '" + std::string(key) + "' holds '" +
                           text + "', which is no size");
    extents.push_back(std::move(*extent));
  }
  if (extents.size() != rank)
    corrupt(program, std::string("the metadata's '") + key +
                         "' does not have the rank of the shape");
  return extents;
}

EntryInfo readEntry(const concord_program &program, const json &object) {
  if (!object.is_object())
    corrupt(program, "an input or output in the metadata is not an object");
  EntryInfo entry;
  entry.name = field<std::string>(program, object, "name");
  entry.dtype = dtypeFromName(field<std::string>(program, object, "dtype"));
  if (entry.dtype == DType::Invalid)
    corrupt(program, "'" + entry.name + "' has an unknown dtype");
  entry.globalShape = shapeOf(program, object, "shape");
  entry.localShape = object.contains("local_shape")
                         ? shapeOf(program, object, "local_shape")
                         : entry.globalShape;
  if (auto it = object.find("sharding"); it != object.end())
    entry.sharding = it->dump();
  if (auto it = object.find("arena_offset");
      it != object.end() && it->is_number_integer())
    entry.arenaOffset = it->get<int64_t>();
  entry.bytes = dtypeSize(entry.dtype);
  for (int64_t extent : entry.localShape)
    if (__builtin_mul_overflow(entry.bytes, uint64_t(extent), &entry.bytes) ||
        entry.bytes > uint64_t(1) << 48)
      corrupt(program, "'" + entry.name + "' is impossibly large");
  entry.globalExtents =
      extentsOf(program, object, "extents", entry.globalShape.size());
  entry.localExtents =
      extentsOf(program, object, "local_extents", entry.localShape.size());
  entry.maxBytes = entry.bytes;
  if (entry.arenaOffset >= 0 &&
      (uint64_t(entry.arenaOffset) > program.arenaBytes ||
       entry.bytes > program.arenaBytes - uint64_t(entry.arenaOffset)))
    corrupt(program, "'" + entry.name + "' lies outside the arena");
  return entry;
}

} // namespace

char *concord::rt::reserveMemory(concord_program &program, uint64_t bytes,
                                 uint64_t align, const char *what) {
  char *block = program.context->heap.allocate(bytes, align);
  if (!block)
    raise(CONCORD_ERROR_OUT_OF_MEMORY,
          "%s: the heap of %llu bytes (CONCORD_HEAP_BYTES) has no room for %s "
          "of %llu bytes",
          program.path.c_str(),
          (unsigned long long)program.context->segment->heapBytes(), what,
          (unsigned long long)bytes);
  program.heapBlocks.push_back(block);
  // Written, not only looked at: a page that was only read is a zero page.
  std::memset(block, 0, bytes);
  if (program.context->hugePages)
    makeHuge(block, bytes, false);
  return block;
}

namespace {

/// Classes of x86-64, in rising order. Compiled code has nothing of
/// AVX512_BF16, only kernels do.
int cpuLevel(const std::string &name) {
  static const char *const kLevels[] = {"x86-64", "x86-64-v2", "x86-64-v3",
                                        "x86-64-v4"};
  if (name == "x86-64-v4-bf16")
    return 3;
  for (int i = 0; i < 4; ++i)
    if (name == kLevels[i])
      return i;
  return -1;
}

std::string machineTarget() {
  if (concord_kernel_target)
    return concord_kernel_target();
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("x86-64-v4"))
    return "x86-64-v4";
  if (__builtin_cpu_supports("x86-64-v3"))
    return "x86-64-v3";
  return "x86-64-v2";
#else
  return "aarch64";
#endif
}

void openLibrary(concord_program &program) {
  struct stat info;
  if (::stat(program.path.c_str(), &info) != 0)
    raise(CONCORD_ERROR_NOT_FOUND, "%s: %s", program.path.c_str(),
          std::strerror(errno));
  // A name without a slash would be looked for in the library path.
  char *full = ::realpath(program.path.c_str(), nullptr);
  if (!full)
    raiseErrno("%s", program.path.c_str());
  program.path = full;
  std::free(full);
  program.library = ::dlopen(program.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!program.library) {
    const char *why = ::dlerror();
    raise(CONCORD_ERROR_CORRUPT,
          "%s is not a program that this machine can load: %s",
          program.path.c_str(), why ? why : "?");
  }
  program.desc = static_cast<const concord_program_desc *>(
      ::dlsym(program.library, CONCORD_PROGRAM_SYMBOL));
  if (!program.desc)
    corrupt(program, "a shared object, but not one of comm-opt's (no symbol "
                     "'" CONCORD_PROGRAM_SYMBOL "')");
  if (program.desc->abi_version != CONCORD_ARTEFACT_ABI_VERSION)
    raise(CONCORD_ERROR_VERSION_MISMATCH,
          "%s was compiled for ABI version %u, this runtime has %d: compile it "
          "again",
          program.path.c_str(), program.desc->abi_version,
          CONCORD_ARTEFACT_ABI_VERSION);
  if (program.desc->struct_size < offsetof(concord_program_desc, num_steps) ||
      !program.desc->meta || !program.desc->plan || !program.desc->step)
    corrupt(program, "the program's description is incomplete");
}

void readMetadata(concord_program &program, json &meta) {
  program.metaText = program.desc->meta;
  meta = json::parse(program.metaText, nullptr, false);
  if (!meta.is_object())
    corrupt(program, "the metadata is not JSON");
  program.name = field<std::string>(program, meta, "name");
  int abi = field<int>(program, meta, "abi");
  if (abi != CONCORD_ARTEFACT_ABI_VERSION)
    raise(CONCORD_ERROR_VERSION_MISMATCH,
          "%s was compiled for ABI version %d, this runtime has %d: compile it "
          "again",
          program.path.c_str(), abi, CONCORD_ARTEFACT_ABI_VERSION);
  int world = field<int>(program, meta, "world");
  if (world != program.context->world)
    raise(CONCORD_ERROR_WRONG_WORLD,
          "%s was compiled for %d ranks, but the job has %d",
          program.path.c_str(), world, program.context->world);
  std::string target = field<std::string>(program, meta, "target_cpu");
  std::string machine = machineTarget();
  int wanted = cpuLevel(target), have = cpuLevel(machine);
  // Packed weights are laid out for one class; code runs on higher ones too.
  bool packed = meta.value("kernels", 0) != 0;
  if (target != machine && (packed || wanted < 0 || wanted > have))
    raise(CONCORD_ERROR_WRONG_CPU,
          "%s was compiled for %s, this machine is %s: compile it for this "
          "class",
          program.path.c_str(), target.c_str(), machine.c_str());
}

/// Numbers that a program of the metadata gives, below `limit`.
std::vector<size_t> numbers(const concord_program &program, const json &own,
                            const char *key, size_t limit) {
  auto list = field<std::vector<size_t>>(program, own, key);
  for (size_t number : list)
    if (number >= limit)
      corrupt(program, std::string("a program's '") + key +
                           "' in the metadata name what is not there");
  return list;
}

/// What this rank's program takes. Of several programs each has its own arena,
/// entries, parameters and kernels; `meta` is reduced to those.
void readEntries(concord_program &program, json &meta) {
  size_t index = program.planIndex;
  size_t steps = program.desc->struct_size >= sizeof(concord_program_desc) &&
                         program.desc->steps
                     ? size_t(program.desc->num_steps)
                     : 1;
  program.step = steps > 1 && index < steps ? program.desc->steps[index]
                                            : program.desc->step;
  if (program.plan.programs.size() > 1) {
    json list = field<json>(program, meta, "programs");
    if (!list.is_array() || list.size() != program.plan.programs.size() ||
        steps != list.size())
      corrupt(program, "metadata, plan and code differ in their programs");
    const json &own = list[index];
    if (field<std::string>(program, own, "name") != program.planned->name)
      corrupt(program, "metadata and plan differ in their programs");
    for (const char *key : {"inputs", "outputs", "parameters"}) {
      json all = field<json>(program, meta, key), mine = json::array();
      for (size_t number : numbers(program, own, key, all.size()))
        mine.push_back(all[number]);
      meta[key] = mine;
    }
    meta["arena_bytes"] = field<uint64_t>(program, own, "arena_bytes");
    auto kernels = field<size_t>(program, meta, "kernels");
    meta["kernels_used"] = numbers(program, own, "kernels", kernels);
  }
  program.arenaBytes = field<uint64_t>(program, meta, "arena_bytes");
  for (const json &object : meta.value("dims", json::array())) {
    BoundedDim dim;
    if (!object.is_object())
      corrupt(program, "a dimension in the metadata is not an object");
    dim.name = field<std::string>(program, object, "name");
    dim.min = field<int64_t>(program, object, "min");
    dim.max = field<int64_t>(program, object, "max");
    if (dim.min < 0 || dim.max < dim.min)
      corrupt(program, "the bounds of dimension '" + dim.name + "' are wrong");
    program.dims.push_back(dim);
  }
  for (const json &text : meta.value("sizes", json::array())) {
    auto extent = text.is_string() ? Extent::parse(text.get<std::string>(),
                                                   program.dims.size())
                                   : std::nullopt;
    if (!extent)
      corrupt(program, "the metadata's 'sizes' holds what is no size");
    program.sizeExtents.push_back(std::move(*extent));
  }
  for (const json &entry : field<json>(program, meta, "inputs"))
    program.inputs.push_back(readEntry(program, entry));
  for (const json &entry : field<json>(program, meta, "outputs"))
    program.outputs.push_back(readEntry(program, entry));
}

void readPlan(concord_program &program, const json &meta) {
  std::string error;
  std::span bytes(reinterpret_cast<const std::byte *>(program.desc->plan),
                  size_t(program.desc->plan_bytes));
  if (!plan::parse(bytes, program.plan, error))
    corrupt(program, "the plan table: " + error);
  if (int(program.plan.world) != program.context->world)
    raise(CONCORD_ERROR_WRONG_WORLD,
          "%s: the plan is for %u ranks, but the job has %d",
          program.path.c_str(), program.plan.world, program.context->world);
  program.digest = plan::toHex(plan::sha256(bytes));
  std::string said = field<std::string>(program, meta, "digest");
  if (!said.empty() && said != program.digest)
    corrupt(program,
            "the plan is not the one that the metadata's digest names");
  program.gated = Gate::needsHold(program.plan);
}

/// The programs that this rank runs: one, or one per issuer. First comes one
/// that issues in every round.
std::vector<uint32_t> ownPrograms(const concord_program &program) {
  std::vector<uint32_t> own;
  for (uint32_t i = 0; i < program.plan.programs.size(); ++i) {
    const plan::Program &candidate = program.plan.programs[i];
    if (candidate.ranks.empty() ||
        std::find(candidate.ranks.begin(), candidate.ranks.end(),
                  program.context->rank) != candidate.ranks.end())
      own.push_back(i);
  }
  if (own.empty())
    corrupt(program, "the plan has no program for rank " +
                         std::to_string(program.context->rank));
  auto always = [&](uint32_t index) {
    const auto &issues = program.plan.programs[index].issues;
    return std::any_of(issues.begin(), issues.end(),
                       [](const plan::Issue &x) { return !x.optional; });
  };
  std::stable_partition(own.begin(), own.end(), always);
  // Each issuer has communicators of its own, so that a call tells whose it is.
  std::vector<uint32_t> issuerOf(program.plan.domains.size(), ~0u);
  for (uint32_t index : own)
    for (const plan::Issue &issue : program.plan.programs[index].issues) {
      uint32_t &user = issuerOf[issue.domain];
      if (user != ~0u && user != index)
        raise(CONCORD_ERROR_PLAN,
              "%s: '%s' and '%s' both issue on domain '%s' of rank %d; give "
              "each issuer a domain of its own",
              program.path.c_str(), program.plan.programs[user].name.c_str(),
              program.plan.programs[index].name.c_str(),
              program.plan.domains[issue.domain].name.c_str(),
              program.context->rank);
      user = index;
    }
  return own;
}

/// The order between several issuers of a rank is certified with hold only.
void refuseOtherModes(const concord_program &program,
                      const std::vector<uint32_t> &own) {
  const Context &context = *program.context;
  static const char *const kModes[] = {"default", "off", "record", "check",
                                       "hold"};
  if (!program.gated) {
    if (own.size() > 1)
      raise(CONCORD_ERROR_PLAN,
            "%s has several issuers on rank %d ('%s', '%s') and no order of "
            "their rounds; run comm-order",
            program.path.c_str(), context.rank,
            program.plan.programs[own[0]].name.c_str(),
            program.plan.programs[own[1]].name.c_str());
    return;
  }
  if (context.gateChosen && context.gateMode != CONCORD_GATE_HOLD)
    raise(CONCORD_ERROR_INVALID_ARGUMENT,
          "%s has several issuers on a rank and is certified with gate=hold "
          "only; it does not start in gate mode %s",
          program.path.c_str(), kModes[context.gateMode]);
  if (context.gate && context.gate->digest() != plan::digest(program.plan))
    raise(CONCORD_ERROR_BUSY,
          "%s has several issuers on a rank, and another plan is loaded in "
          "this context",
          program.path.c_str());
}

void makeKernels(concord_program &program, const json &meta) {
  std::string lines = program.desc->kernels ? program.desc->kernels : "";
  auto used = meta.find("kernels_used");
  for (size_t at = 0; at < lines.size();) {
    size_t end = std::min(lines.find('\n', at), lines.size());
    std::string line = lines.substr(at, end - at);
    at = end + 1;
    if (!line.empty())
      program.kernelLines.push_back(std::move(line));
  }
  const size_t number = program.kernelLines.size();
  if (meta.contains("kernels") &&
      field<uint64_t>(program, meta, "kernels") != number)
    corrupt(program, "the number of kernels is not the metadata's");
  if (meta.contains("kernel_sizes")) {
    program.kernelNeeds = field<std::vector<std::pair<uint64_t, uint64_t>>>(
        program, meta, "kernel_sizes");
    if (program.kernelNeeds.size() != number)
      corrupt(program, "'kernel_sizes' is not one entry per kernel");
  }
  for (size_t i = 0; i < number; ++i) {
    const std::string &line = program.kernelLines[i];
    bool sized = !program.dims.empty() && line.find('{') != std::string::npos;
    // Another program's, or one that is made when its sizes are known.
    bool foreign = used != meta.end() &&
                   std::find(used->begin(), used->end(), i) == used->end();
    program.fixedKernels.push_back(
        sized || foreign ? nullptr : makeKernel(program, i, line));
  }
  program.kernels = program.fixedKernels;
}

void mapWeights(concord_program &program, const json &meta, bool verify) {
  std::string file = meta.value("weights", std::string());
  json parameters = meta.value("parameters", json::array());
  if (parameters.empty())
    return;
  if (file.empty() || file.find('/') != std::string::npos)
    corrupt(program, "the weights' name must be that of a file beside the "
                     "program");
  std::string folder = program.path.substr(0, program.path.rfind('/') + 1);
  program.weights.open(folder + file);
  for (const json &parameter : parameters) {
    if (!parameter.is_object())
      corrupt(program, "a parameter in the metadata is not an object");
    std::string name = field<std::string>(program, parameter, "section");
    const Weights::Section *section =
        program.weights.find(name, program.context->rank);
    if (!section)
      raise(CONCORD_ERROR_CORRUPT, "%s%s has no section '%s' for rank %d",
            folder.c_str(), file.c_str(), name.c_str(), program.context->rank);
    uint64_t bytes = field<uint64_t>(program, parameter, "bytes");
    if (bytes != section->bytes)
      raise(CONCORD_ERROR_CORRUPT,
            "%s%s: section '%s' has %llu bytes, the program needs %llu; do the "
            "two files belong together?",
            folder.c_str(), file.c_str(), name.c_str(),
            (unsigned long long)section->bytes, (unsigned long long)bytes);
    program.parameters.push_back(program.weights.map(*section, verify));
  }
}

void makeBuffers(concord_program &program, const json &meta) {
  uint64_t align = meta.value("arena_align", uint64_t(64));
  if (align & (align - 1) || align > kHugePage)
    corrupt(program, "the arena's alignment is not a power of two up to 2 MiB");
  if (program.arenaBytes)
    program.arena =
        reserveMemory(program, program.arenaBytes, align, "an arena");
  auto own = [&](const std::vector<EntryInfo> &entries,
                 std::vector<void *> &list) {
    for (const EntryInfo &entry : entries)
      list.push_back(
          entry.arenaOffset >= 0
              ? program.arena + entry.arenaOffset
              : reserveMemory(program, entry.bytes, 64, "an input or output"));
  };
  own(program.inputs, program.ownInputs);
  own(program.outputs, program.ownOutputs);
  program.inputData = program.ownInputs;
  program.outputData = program.ownOutputs;
  program.lastOutputs = program.outputData;
}

} // namespace

concord_kernel *concord::rt::makeKernel(concord_program &program, size_t number,
                                        const std::string &line) {
  if (!concord_kernel_create)
    raise(CONCORD_ERROR_NOT_SUPPORTED,
          "%s needs compute kernels, but this library was built without them",
          program.path.c_str());
  concord_kernel_info info{};
  info.struct_size = sizeof info;
  concord_kernel *kernel = nullptr;
  int32_t status = concord_kernel_create(line.c_str(), &kernel, &info);
  if (status != CONCORD_OK)
    raise(CONCORD_ERROR_KERNEL, "%s: kernel %zu (%s): %s", program.path.c_str(),
          number, line.c_str(), concord_kernel_last_error());
  // The compiler planned for these sizes; another library's kernel of the same
  // description would write outside, or read another packing. With bounded
  // dimensions the workspace is the most that any size needs.
  if (number < program.kernelNeeds.size()) {
    auto [workspace, packed] = program.kernelNeeds[number];
    bool fits = program.dims.empty() ? info.workspace_bytes == workspace
                                     : info.workspace_bytes <= workspace;
    if (!fits || info.packed_weight_bytes != packed) {
      concord_kernel_destroy(kernel);
      raise(CONCORD_ERROR_KERNEL,
            "%s: kernel %zu (%s) needs other workspace or packing than it "
            "was compiled for; compile again with the comm-opt of this "
            "library",
            program.path.c_str(), number, line.c_str());
    }
  }
  return kernel;
}

/// What one program needs, after its plan is there.
static void makeProgram(concord_program &program, json meta, uint32_t index,
                        bool verifyWeights) {
  program.planIndex = index;
  program.planned = &program.plan.programs[index];
  if (!program.planned->name.empty() && program.plan.programs.size() > 1)
    program.name = program.planned->name;
  readEntries(program, meta);
  makeKernels(program, meta);
  mapWeights(program, meta, verifyWeights);
  makeBuffers(program, meta);
  program.boundShapes.resize(program.inputs.size());
  program.sizes.resize(program.sizeExtents.size());
  for (const BoundedDim &dim : program.dims)
    program.wantedSizes.push_back(dim.max);
  prepareSites(program);
  prepareProgram(program);
  prefaultCode(program.path);
}

/// What generated code is given in every step.
static void fillArguments(concord_program &program) {
  concord_step_args &args = program.args;
  args.struct_size = sizeof args;
  args.rank = program.context->rank;
  args.context = program.context;
  args.arena = program.arena;
  args.parameters = program.parameters.data();
  args.inputs = program.inputData.data();
  args.outputs = program.outputData.data();
  args.kernels = program.kernels.data();
  args.sizes = program.sizes.data();
}

concord_program *
concord::rt::loadProgram(Context &context, const char *path,
                         const concord_program_options &options) {
  auto program = std::make_unique<concord_program>();
  program->context = &context;
  program->path = path;
  program->trace = options.trace;
  program->traceUser = options.trace_user;
  ++context.loads;
  PlanReport report{};
  std::string words;
  std::unique_ptr<Gate> gate;
  int mode = context.gateMode;
  try {
    json meta;
    openLibrary(*program);
    readMetadata(*program, meta);
    readPlan(*program, meta);
    std::vector<uint32_t> own = ownPrograms(*program);
    refuseOtherModes(*program, own);
    if (program->gated) {
      mode = CONCORD_GATE_HOLD;
      if (!context.gate) {
        int before = std::exchange(context.gateMode, mode);
        try {
          gate = std::make_unique<Gate>(context, program->plan);
        } catch (...) {
          context.gateMode = before;
          throw;
        }
        context.gateMode = before;
      }
    }
    bool verify =
        options.verify_weights || envInteger("CONCORD_VERIFY_WEIGHTS", 0);
    makeProgram(*program, meta, own[0], verify);
    for (size_t i = 1; i < own.size(); ++i) {
      auto other = std::make_unique<concord_program>();
      other->context = &context;
      other->path = program->path;
      other->trace = program->trace;
      other->traceUser = program->traceUser;
      program->others.push_back(std::move(other));
      concord_program &next = *program->others.back();
      json again;
      openLibrary(next);
      readMetadata(next, again);
      readPlan(next, again);
      makeProgram(next, std::move(again), own[i], verify);
    }
    report.gateMode = mode;
    for (const plan::Program &each : program->plan.programs)
      report.issues += uint32_t(each.issues.size());
    report.digest =
        plan::sha256({reinterpret_cast<const std::byte *>(program->desc->plan),
                      size_t(program->desc->plan_bytes)});
  } catch (const Error &error) {
    report.status = error.status;
    words = error.text;
  } catch (const std::exception &error) {
    report.status = CONCORD_ERROR_INTERNAL;
    words = std::string(path) + ": " + error.what();
  }
  std::strncpy(report.text, words.c_str(), sizeof report.text - 1);
  auto release = [&] { dropProgram(program.release()); };
  try {
    agreeOnPlan(context, report, words, program->plan, "program");
  } catch (...) {
    release();
    throw;
  }
  if (gate) {
    context.gateModeBefore = std::exchange(context.gateMode, mode);
    context.gate = std::move(gate);
  }
  fillArguments(*program);
  context.programs.push_back(program.get());
  for (auto &other : program->others) {
    fillArguments(*other);
    context.programs.push_back(other.get());
  }
  context.running.reserve(1 + program->others.size());
  return program.release();
}

void concord::rt::dropProgram(concord_program *program) {
  Context &context = *program->context;
  for (auto &other : program->others)
    dropProgram(other.release());
  program->others.clear();
  std::erase(context.programs, program);
  for (concord_comm *comm : program->comms)
    dropComm(comm);
  for (concord_kernel *kernel : program->fixedKernels)
    if (kernel)
      concord_kernel_destroy(kernel);
  for (SizedKernels &set : program->sizedKernels)
    dropKernels(set);
  for (Site &site : program->sites) {
    if (site.fused)
      for (void *block : site.fused->bounce)
        if (block)
          context.heap.release(block);
    if (site.kernel)
      concord_kernel_destroy(site.kernel);
  }
  for (void *block : program->heapBlocks)
    context.heap.release(block);
  void *library = program->library;
  // A plan that programs brought goes with the last of them.
  bool last = program->gated && context.gateModeBefore &&
              std::none_of(context.programs.begin(), context.programs.end(),
                           [](const auto *other) { return other->gated; });
  delete program;
  if (library)
    ::dlclose(library);
  if (last) {
    context.gate.reset();
    context.gateMode = *std::exchange(context.gateModeBefore, std::nullopt);
  }
}
