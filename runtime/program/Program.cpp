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
  if (entry.arenaOffset >= 0 &&
      (uint64_t(entry.arenaOffset) > program.arenaBytes ||
       entry.bytes > program.arenaBytes - uint64_t(entry.arenaOffset)))
    corrupt(program, "'" + entry.name + "' lies outside the arena");
  return entry;
}

/// Reserve heap memory and make its pages present.
char *reserve(concord_program &program, uint64_t bytes, uint64_t align,
              const char *what) {
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
  return block;
}

/// Classes of x86-64, in rising order.
int cpuLevel(const std::string &name) {
  static const char *const kLevels[] = {"x86-64", "x86-64-v2", "x86-64-v3",
                                        "x86-64-v4"};
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
  if (program.desc->struct_size < sizeof(concord_program_desc) ||
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
  program.arenaBytes = field<uint64_t>(program, meta, "arena_bytes");
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
  // The order between several issuers of a rank is only safe if an issue is
  // held for its turn, which this runtime does not do yet.
  for (const plan::Program &candidate : program.plan.programs) {
    if (!candidate.ranks.empty() &&
        std::find(candidate.ranks.begin(), candidate.ranks.end(),
                  program.context->rank) == candidate.ranks.end())
      continue;
    if (program.planned)
      raise(CONCORD_ERROR_NOT_SUPPORTED,
            "%s has several issuers on rank %d ('%s' and '%s'), which needs "
            "gate mode hold",
            program.path.c_str(), program.context->rank,
            program.planned->name.c_str(), candidate.name.c_str());
    program.planned = &candidate;
  }
  if (!program.planned)
    corrupt(program, "the plan has no program for rank " +
                         std::to_string(program.context->rank));
}

void makeKernels(concord_program &program, const json &meta) {
  std::string lines = program.desc->kernels ? program.desc->kernels : "";
  size_t number = 0;
  for (size_t at = 0; at < lines.size();) {
    size_t end = std::min(lines.find('\n', at), lines.size());
    std::string line = lines.substr(at, end - at);
    at = end + 1;
    if (line.empty())
      continue;
    if (!concord_kernel_create)
      raise(CONCORD_ERROR_NOT_SUPPORTED,
            "%s needs compute kernels, but this library was built without them",
            program.path.c_str());
    concord_kernel_info info{};
    info.struct_size = sizeof info;
    concord_kernel *kernel = nullptr;
    int32_t status = concord_kernel_create(line.c_str(), &kernel, &info);
    if (status != CONCORD_OK)
      raise(CONCORD_ERROR_KERNEL, "%s: kernel %zu (%s): %s",
            program.path.c_str(), number, line.c_str(),
            concord_kernel_last_error());
    program.kernels.push_back(kernel);
    // The compiler planned for these sizes; another library's kernel of the
    // same description would write outside, or read another packing.
    if (auto sizes = meta.find("kernel_sizes"); sizes != meta.end()) {
      json want = json::array({info.workspace_bytes, info.packed_weight_bytes});
      if (!sizes->is_array() || number >= sizes->size() ||
          (*sizes)[number] != want)
        raise(CONCORD_ERROR_KERNEL,
              "%s: kernel %zu (%s) needs other workspace or packing than it "
              "was compiled for; compile again with the comm-opt of this "
              "library",
              program.path.c_str(), number, line.c_str());
    }
    ++number;
  }
  if (meta.contains("kernels") &&
      field<uint64_t>(program, meta, "kernels") != number)
    corrupt(program, "the number of kernels is not the metadata's");
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
    program.arena = reserve(program, program.arenaBytes, align, "an arena");
  auto own = [&](const std::vector<EntryInfo> &entries,
                 std::vector<void *> &list) {
    for (const EntryInfo &entry : entries)
      list.push_back(entry.arenaOffset >= 0 ? program.arena + entry.arenaOffset
                                            : reserve(program, entry.bytes, 64,
                                                      "an input or output"));
  };
  own(program.inputs, program.ownInputs);
  own(program.outputs, program.ownOutputs);
  program.inputData = program.ownInputs;
  program.outputData = program.ownOutputs;
  program.lastOutputs = program.outputData;
}

/// The same bytes from every rank, through the world communicator.
template <typename T> std::vector<T> tellAll(Context &context, const T &mine) {
  std::vector<T> all(size_t(context.world));
  Op op;
  OpRequest &r = op.request;
  r.kind = Kind::AllGather;
  r.dtype = DType::U8;
  r.chunk = sizeof(T);
  r.in = {const_cast<T *>(&mine), 1, sizeof(T), sizeof(T)};
  r.out = {all.data(), 1, sizeof(T), sizeof(T) * all.size()};
  int32_t status = prepare(op, *context.worldComm);
  if (status == CONCORD_OK)
    status = runNow(op);
  if (status != CONCORD_OK)
    throw Error(status, lastError());
  return all;
}

struct LoadReport {
  int32_t status;
  uint32_t issues;
  plan::Digest digest;
  char text[512];
};

std::string siteText(const plan::Plan &plan, size_t site) {
  for (const plan::Program &program : plan.programs) {
    if (site < program.issues.size()) {
      const plan::Issue &issue = program.issues[site];
      return "site " + std::to_string(site) + " of program '" + program.name +
             "', " + kindName(issue.kind) + " on '" +
             plan.domains[issue.domain].name + "' (" + issue.location + ")";
    }
    site -= program.issues.size();
  }
  return "the end of the plan";
}

/// The plans differ: find the first site at which they do. All ranks see the
/// same exchanges, so all take the same steps and come to the same result.
[[noreturn]] void reportDifference(const concord_program &program,
                                   const std::vector<LoadReport> &reports) {
  Context &context = *program.context;
  auto chain = plan::prefixDigests(program.plan);
  uint32_t shortest = reports[0].issues;
  int other = 0;
  for (size_t r = 0; r < reports.size(); ++r) {
    shortest = std::min(shortest, reports[r].issues);
    if (other == 0 && reports[r].digest != reports[0].digest)
      other = int(r);
  }
  auto differsAt = [&](uint32_t length) {
    auto all = tellAll(context, chain[length]);
    return std::any_of(all.begin(), all.end(),
                       [&](const plan::Digest &d) { return d != all[0]; });
  };
  std::string where;
  if (differsAt(0)) {
    where = "in its world, domains or assumptions";
  } else if (!differsAt(shortest)) {
    bool lengths =
        std::any_of(reports.begin(), reports.end(), [&](const LoadReport &r) {
          return r.issues != reports[0].issues;
        });
    where = lengths ? "after the first " + std::to_string(shortest) +
                          " operations, where one ends"
                    : "in the order tree, not in the operations";
  } else {
    uint32_t same = 0, different = shortest;
    while (different - same > 1) {
      uint32_t middle = same + (different - same) / 2;
      (differsAt(middle) ? different : same) = middle;
    }
    where = "at operation " + std::to_string(same) + ", here " +
            siteText(program.plan, same);
  }
  raise(CONCORD_ERROR_PLAN_DIFFERS,
        "ranks 0 and %d have loaded different programs: the plans first differ "
        "%s (plan of rank %d: %.16s...)",
        other, where.c_str(), context.rank, program.digest.c_str());
}

} // namespace

concord_program *
concord::rt::loadProgram(Context &context, const char *path,
                         const concord_program_options &options) {
  auto program = std::make_unique<concord_program>();
  program->context = &context;
  program->path = path;
  program->trace = options.trace;
  program->traceUser = options.trace_user;
  ++context.loads;
  LoadReport report{};
  std::string words;
  try {
    json meta;
    openLibrary(*program);
    readMetadata(*program, meta);
    readPlan(*program, meta);
    makeKernels(*program, meta);
    mapWeights(*program, meta,
               options.verify_weights ||
                   envInteger("CONCORD_VERIFY_WEIGHTS", 0));
    makeBuffers(*program, meta);
    prefaultCode(program->path);
    prepareSites(*program);
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
    auto reports = tellAll(context, report);
    if (report.status != CONCORD_OK)
      throw Error(report.status, words);
    for (size_t r = 0; r < reports.size(); ++r)
      if (reports[r].status != CONCORD_OK) {
        reports[r].text[sizeof reports[r].text - 1] = 0;
        raise(reports[r].status, "rank %zu could not load its program: %s", r,
              reports[r].text);
      }
    for (const LoadReport &each : reports)
      if (each.digest != reports[0].digest)
        reportDifference(*program, reports);
  } catch (...) {
    release();
    throw;
  }
  concord_step_args &args = program->args;
  args.struct_size = sizeof args;
  args.rank = context.rank;
  args.context = &context;
  args.arena = program->arena;
  args.parameters = program->parameters.data();
  args.inputs = program->inputData.data();
  args.outputs = program->outputData.data();
  args.kernels = program->kernels.data();
  context.programs.push_back(program.get());
  return program.release();
}

void concord::rt::dropProgram(concord_program *program) {
  Context &context = *program->context;
  std::erase(context.programs, program);
  for (concord_comm *comm : program->comms)
    dropComm(comm);
  for (concord_kernel *kernel : program->kernels)
    concord_kernel_destroy(kernel);
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
  delete program;
  if (library)
    ::dlclose(library);
}
