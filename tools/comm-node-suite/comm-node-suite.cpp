//===- comm-node-suite.cpp - Compile and run many small models ------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The driver of test/node_suite: one process that compiles each model in turn
// and runs it with ranks as threads. Standard input has lines of
//   MODEL  DATA_SET_DIR  RANKS  AXIS  RTOL  ATOL
// separated by tabs; each is answered by PASS, FAIL, ERROR or SKIP and a
// message.
//
//===----------------------------------------------------------------------===//

#include "Emit.h"
#include "Passes.h"
#include "comm/Comm.h"
#include "concord/concord.h"
#include "concord/onnx/Reader.h"
#include "import/OnnxImport.h"
#include "onnx/Onnx.h"

#include "concord_onnx.pb.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>

using namespace mlir;
using namespace concord;
namespace fs = std::filesystem;

namespace {

/// What ends a case early: the verdict's first word and the message.
struct Verdict {
  std::string word, message;
};

struct Case {
  std::string model, data, axis;
  int ranks = 1;
  double rtol = 1e-3, atol = 1e-7;
};

/// Flattens a message to one line.
std::string oneLine(std::string text) {
  for (char &c : text)
    if (c == '\n' || c == '\r' || c == '\t')
      c = ' ';
  return text.substr(0, 400);
}

std::vector<onnx::Tensor> readTensors(const std::string &folder,
                                      const char *prefix) {
  std::vector<onnx::Tensor> tensors;
  for (int i = 0;; ++i) {
    std::string path = folder + "/" + prefix + "_" + std::to_string(i) + ".pb";
    if (!fs::exists(path))
      return tensors;
    tensors.push_back(onnx::readTensorProto(path));
  }
}

/// Names of the inputs that have no initialiser, in order.
std::vector<std::string> inputNames(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  onnx_wire::Model proto;
  if (!proto.ParseFromIstream(&file))
    throw Verdict{"ERROR", "cannot parse the model"};
  std::set<std::string> initialised;
  for (const auto &tensor : proto.graph().initializer())
    initialised.insert(tensor.name());
  std::vector<std::string> names;
  for (const auto &info : proto.graph().input())
    if (!initialised.count(info.name()))
      names.push_back(info.name());
  return names;
}

//===----------------------------------------------------------------------===//
// Compiling
//===----------------------------------------------------------------------===//

struct Compiled {
  std::string path;                ///< the artefact
  std::vector<std::string> inputs; ///< names of its inputs, in order
  bool communicates = false, split = false;
};

/// Inputs on whose data a shape depends are bound as constants: the reader says
/// which.
onnx::Model readBinding(const Case &test,
                        const std::map<std::string, onnx::Tensor> &inputs) {
  onnx::ReadOptions options;
  options.world = test.ranks;
  for (auto &[name, tensor] : inputs)
    options.inputShapes[name] = tensor.type.shape;
  while (true) {
    try {
      return onnx::readModel(test.model, options);
    } catch (const onnx::NeedsConstantInput &error) {
      bool bound = false;
      for (const std::string &name : error.inputs)
        if (auto it = inputs.find(name); it != inputs.end())
          bound |= options.constantInputs.insert(*it).second;
      if (!bound)
        throw;
      for (auto &[name, tensor] : options.constantInputs)
        options.inputShapes.erase(name);
    }
  }
}

class Driver {
public:
  Driver() {
    registerAllDialects(registry);
    registerAllExtensions(registry);
    registry.insert<comm::CommDialect, onnxir::OnnxDialect>();
    comm::registerBufferizationModels(registry);
    char name[] = "/dev/shm/concord-nodes-XXXXXX";
    folder = mkdtemp(name) ? name : fs::temp_directory_path().string();
  }
  ~Driver() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  Verdict run(const Case &test);

private:
  Compiled compile(const Case &test,
                   const std::map<std::string, onnx::Tensor> &inputs);

  DialectRegistry registry;
  std::string folder;
  int number = 0;
};

Compiled Driver::compile(const Case &test,
                         const std::map<std::string, onnx::Tensor> &inputs) {
  onnx::Model model = readBinding(test, inputs);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  std::string diagnostics;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      diagnostics += diagnostic.str() + "; ";
    return success();
  });
  ImportOptions options;
  if (test.ranks > 1)
    options.mesh = {{test.axis, test.ranks}};
  options.world = test.ranks;
  std::vector<onnx::Model> models;
  models.push_back(std::move(model));
  OwningOpRef<ModuleOp> module =
      importOnnx(&context, models, test.model, options);
  if (!module)
    throw Verdict{"ERROR", diagnostics};
  Compiled result;
  result.path = folder + "/case" + std::to_string(number++) + ".so";
  (*module)->setAttr(
      "comm.name",
      StringAttr::get(&context, fs::path(result.path).stem().string()));
  for (onnx::ValueId id : models.front().graph.inputs)
    result.inputs.push_back(models.front().graph.values[id].name);
  PipelineOptions pipeline;
  pipeline.to = "lowered";
  PassManager manager(&context);
  buildPipeline(manager, pipeline);
  if (failed(manager.run(*module)))
    throw Verdict{diagnostics.find("does not divide") != std::string::npos
                      ? "SKIP"
                      : "ERROR",
                  diagnostics};
  std::string error = emitSharedObject(*module, result.path);
  if (!error.empty())
    throw Verdict{"ERROR", error};
  return result;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

/// One splitting of a dimension, from an entry's sharding.
struct Split {
  int64_t dim, outer;
};

std::vector<Split> splitsOf(const char *json) {
  std::vector<Split> splits;
  auto parsed = llvm::json::parse(json ? json : "{}");
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return splits;
  }
  if (auto *object = parsed->getAsObject())
    if (auto *list = object->getArray("splits"))
      for (auto &value : *list)
        if (auto *split = value.getAsObject())
          splits.push_back({split->getInteger("dim").value_or(0),
                            split->getInteger("outer").value_or(1)});
  return splits;
}

/// Copies between a whole tensor and one rank's part of it (one axis of
/// `ranks`).
void copyPart(std::span<const int64_t> global, size_t element,
              const Split &split, int64_t ranks, int64_t rank, std::byte *whole,
              std::byte *part, bool toPart) {
  uint64_t before = split.outer, inside = element;
  for (int64_t i = 0; i < split.dim; ++i)
    before *= global[i];
  for (size_t i = split.dim + 1; i < global.size(); ++i)
    inside *= global[i];
  uint64_t block = global[split.dim] / split.outer * inside,
           mine = block / ranks;
  for (uint64_t i = 0; i < before; ++i) {
    std::byte *there = whole + i * block + rank * mine, *here = part + i * mine;
    std::memcpy(toPart ? here : there, toPart ? there : here, mine);
  }
}

struct Shared {
  const Case &test;
  const Compiled &compiled;
  const std::map<std::string, onnx::Tensor> &inputs;
  concord_job *job;
  std::vector<onnx::Tensor> outputs; ///< whole; written by all ranks
  std::mutex mutex;
  std::string error;
  bool split = false;
};

void fail(Shared &shared, const std::string &what) {
  std::lock_guard<std::mutex> lock(shared.mutex);
  if (shared.error.empty())
    shared.error = what;
}

/// One rank: load, fill the inputs, step twice (a kernel must not keep state),
/// hand the outputs over.
void runRank(Shared &shared, int rank) {
  concord_context_config config = {};
  config.struct_size = sizeof(config);
  config.job = shared.job;
  config.rank = rank;
  config.timeout_seconds = 20;
  concord_context *context = nullptr;
  if (concord_context_create(&config, &context) != CONCORD_OK)
    return fail(shared, concord_last_error());
  concord_program *program = nullptr;
  auto check = [&](int32_t status) {
    if (status != CONCORD_OK)
      fail(shared, concord_last_error());
    return status == CONCORD_OK;
  };
  bool ok = check(concord_program_load(context, shared.compiled.path.c_str(),
                                       nullptr, &program));
  uint32_t numOutputs = 0;
  ok = ok && check(concord_program_num_outputs(program, &numOutputs));
  for (size_t i = 0; ok && i < shared.compiled.inputs.size(); ++i) {
    concord_entry entry = {};
    entry.struct_size = sizeof(entry);
    void *data = nullptr;
    ok = check(concord_program_input(program, i, &entry)) &&
         check(concord_program_input_data(program, i, &data));
    if (!ok)
      break;
    const onnx::Tensor &tensor = shared.inputs.at(shared.compiled.inputs[i]);
    std::vector<Split> splits = splitsOf(entry.sharding_json);
    if (splits.empty()) {
      std::memcpy(data, tensor.bytes.data(),
                  std::min<uint64_t>(entry.local_bytes, tensor.bytes.size()));
      continue;
    }
    shared.split = true;
    copyPart({entry.global_shape, entry.rank}, dtypeSize(tensor.type.dtype),
             splits[0], shared.test.ranks, rank,
             const_cast<std::byte *>(tensor.bytes.data()),
             static_cast<std::byte *>(data), /*toPart=*/true);
  }
  for (int step = 0; ok && step < 2; ++step)
    ok = check(concord_program_step(program));
  for (uint32_t i = 0; ok && i < numOutputs; ++i) {
    concord_entry entry = {};
    entry.struct_size = sizeof(entry);
    void *data = nullptr;
    ok = check(concord_program_output(program, i, &entry)) &&
         check(concord_program_output_data(program, i, &data));
    if (!ok)
      break;
    std::lock_guard<std::mutex> lock(shared.mutex);
    onnx::Tensor &whole = shared.outputs[i];
    std::vector<Split> splits = splitsOf(entry.sharding_json);
    if (whole.type.dtype == DType::Invalid)
      whole = onnx::Tensor::allocate(
          {static_cast<DType>(entry.dtype),
           onnx::Shape(entry.global_shape, entry.global_shape + entry.rank)});
    if (splits.empty()) {
      std::memcpy(whole.mutableBytes().data(), data, whole.type.numBytes());
    } else {
      shared.split = true;
      copyPart({entry.global_shape, entry.rank}, dtypeSize(whole.type.dtype),
               splits[0], shared.test.ranks, rank, whole.mutableBytes().data(),
               static_cast<std::byte *>(data), /*toPart=*/false);
    }
  }
  (void)concord_program_unload(program);
  (void)concord_context_finalize(context);
}

/// Empty, or where the output differs from what is expected.
std::string compare(const onnx::Tensor &got, const onnx::Tensor &want,
                    double rtol, double atol) {
  if (got.type.dtype != want.type.dtype)
    return "dtype " + std::string(dtypeName(got.type.dtype)) + ", expected " +
           std::string(dtypeName(want.type.dtype));
  if (got.type.shape != want.type.shape)
    return "shape differs";
  // One rounding step of narrow types is not an error of the computation.
  if (want.type.dtype == DType::F16)
    rtol = std::max(rtol, 2e-3);
  else if (want.type.dtype == DType::BF16)
    rtol = std::max(rtol, 1.6e-2);
  else if (want.type.dtype == DType::F8E4M3 || want.type.dtype == DType::F8E5M2)
    return got.bytes.size() == want.bytes.size() &&
                   std::memcmp(got.bytes.data(), want.bytes.data(),
                               got.bytes.size()) == 0
               ? ""
               : "8-bit floats differ";
  for (int64_t i = 0; i < want.type.numElements(); ++i) {
    double a = got.floatAt(i), b = want.floatAt(i);
    if (std::isnan(a) && std::isnan(b))
      continue;
    if (a == b || std::abs(a - b) <= atol + rtol * std::abs(b))
      continue;
    std::ostringstream text;
    text << "element " << i << " is " << a << ", expected " << b;
    return text.str();
  }
  return "";
}

Verdict Driver::run(const Case &test) {
  std::vector<onnx::Tensor> data = readTensors(test.data, "input");
  std::vector<onnx::Tensor> expected = readTensors(test.data, "output");
  std::vector<std::string> names = inputNames(test.model);
  std::map<std::string, onnx::Tensor> inputs;
  for (size_t i = 0; i < names.size() && i < data.size(); ++i)
    inputs[names[i]] = data[i];
  Compiled compiled = compile(test, inputs);

  concord_job *job = nullptr;
  if (concord_job_create(test.ranks, 0, &job) != CONCORD_OK)
    return {"ERROR", concord_last_error()};
  Shared shared{test, compiled, inputs, job, {}, {}, {}, false};
  shared.outputs.resize(expected.size() + 8);
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < test.ranks; ++rank)
    ranks.emplace_back([&, rank] { runRank(shared, rank); });
  for (std::thread &thread : ranks)
    thread.join();
  (void)concord_job_destroy(job);
  std::error_code ignored;
  fs::remove(compiled.path, ignored);
  fs::remove(fs::path(compiled.path).replace_extension(".weights"), ignored);
  if (!shared.error.empty())
    return {"ERROR", shared.error};
  for (size_t i = 0; i < expected.size(); ++i)
    if (std::string what =
            compare(shared.outputs[i], expected[i], test.rtol, test.atol);
        !what.empty())
      return {"FAIL", "output " + std::to_string(i) + ": " + what};
  if (test.ranks > 1 && !shared.split)
    return {"SKIP", "nothing to split over the ranks"};
  return {"PASS", ""};
}

bool parseCase(const std::string &line, Case &test) {
  std::vector<std::string> fields;
  std::stringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');)
    fields.push_back(field);
  if (fields.size() != 6)
    return false;
  test = {fields[0],
          fields[1],
          fields[3],
          std::atoi(fields[2].c_str()),
          std::atof(fields[4].c_str()),
          std::atof(fields[5].c_str())};
  return test.ranks >= 1 && test.ranks <= 64;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    Case test;
    Verdict verdict{
        "ERROR", "expected MODEL DATA RANKS AXIS RTOL ATOL, separated by tabs"};
    if (parseCase(line, test)) {
      try {
        verdict = driver.run(test);
      } catch (const Verdict &early) {
        verdict = early;
      } catch (const std::exception &error) {
        verdict = {"ERROR", error.what()};
      }
    }
    std::cout << verdict.word;
    if (!verdict.message.empty())
      std::cout << " " << oneLine(verdict.message);
    std::cout << std::endl;
  }
  return 0;
}
