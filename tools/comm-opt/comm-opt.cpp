//===- comm-opt.cpp - The compiler driver ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Everything that mlir-opt does, and in addition: foreign models as input, told
// apart by content; a mesh to compile for; and artefacts as output. Exit codes:
// 0 done, 1 the input or the options are wrong, as mlir-opt.
//
//===----------------------------------------------------------------------===//

#include "Emit.h"
#include "MicroBatches.h"
#include "Options.h"
#include "Passes.h"
#include "Report.h"
#include "Simulate.h"
#include "Summary.h"
#include "comm/Comm.h"
#include "common/Artefact.h"
#include "common/Choices.h"
#include "common/Explain.h"
#include "common/Family.h"
#include "common/NodeBridge.h"
#include "common/PlanBuilder.h"
#include "common/Workspace.h"
#include "concord/concord.h"
#include "concord/stablehlo/Reader.h"
#include "import/HloImport.h"
#include "onnx/Onnx.h"
#include "partition/Solutions.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/InitAllDialects.h"
#include "mlir/InitAllExtensions.h"
#include "mlir/InitAllPasses.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/BuryPointer.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

#include <csignal>

using namespace mlir;
using namespace concord;

static llvm::cl::OptionCategory category("Concord options");
static llvm::cl::opt<std::string>
    inputFile(llvm::cl::Positional,
              llvm::cl::desc("<input: .onnx, .hlo, .mlir (StableHLO too)>"),
              llvm::cl::init("-"));
static llvm::cl::opt<std::string> outputFile("o", llvm::cl::desc("Output file"),
                                             llvm::cl::value_desc("FILE"),
                                             llvm::cl::init("-"));
static llvm::cl::opt<std::string>
    importAs("import",
             llvm::cl::desc(
                 "Read the input as onnx, hlo, stablehlo or mlir, whatever it "
                 "looks like"),
             llvm::cl::init(""), llvm::cl::cat(category));
static llvm::cl::opt<std::string>
    emit("emit",
         llvm::cl::desc("What to write: mlir (default), hlo, plan, obj, so"),
         llvm::cl::init("mlir"), llvm::cl::cat(category));
static llvm::cl::opt<bool>
    summaryOption("comm-summary",
                  llvm::cl::desc("Print collectives and bytes per domain, "
                                 "arena and certificate to standard error"),
                  llvm::cl::init(false), llvm::cl::cat(category));

static llvm::cl::list<std::string> pureCalls(
    "hlo-pure-call",
    llvm::cl::desc("A custom call of an HLO module that computes only"),
    llvm::cl::value_desc("TARGET,..."), llvm::cl::CommaSeparated,
    llvm::cl::cat(category));

static llvm::cl::opt<bool>
    explainOption("explain",
                  llvm::cl::desc("Print every decision with its reason to "
                                 "standard error (docs/explain.md)"),
                  llvm::cl::init(false), llvm::cl::cat(category));

static llvm::cl::opt<bool> simulateOption(
    "simulate",
    llvm::cl::desc("Print the predicted step time, exposed communication and "
                   "link loads; writes no module unless -o is given"),
    llvm::cl::init(false), llvm::cl::cat(category));
static llvm::cl::opt<std::string> topologyOption(
    "topology",
    llvm::cl::desc("Machine of --simulate and --report: a topology or "
                   "calibration file (docs/cost-model.md), cpu, accelerator"),
    llvm::cl::value_desc("FILE"), llvm::cl::init(""), llvm::cl::cat(category));
static llvm::cl::opt<std::string> reportOption(
    "report",
    llvm::cl::desc("Write one self-contained page: timeline, memory, order, "
                   "decisions, critical path"),
    llvm::cl::value_desc("FILE.html"), llvm::cl::init(""),
    llvm::cl::cat(category));
static llvm::cl::opt<std::string> reportTraceOption(
    "report-trace",
    llvm::cl::desc("Show what comm-run --trace measured in the report, too"),
    llvm::cl::value_desc("FILE.json"), llvm::cl::init(""),
    llvm::cl::cat(category));

namespace {

enum class Format { Mlir, Onnx, Hlo, Stablehlo };

/// ONNX files begin with field 1 (ir_version, a varint) and hold zero bytes;
/// MLIR is text or MLIR bytecode.
Format sniff(StringRef data) {
  if (data.starts_with("ML\xefR"))
    return Format::Mlir;
  if (hlo::looksLikeHlo({data.data(), data.size()}))
    return Format::Hlo;
  StringRef head = data.take_front(4096);
  bool binary = llvm::any_of(head, [](char c) {
    auto byte = static_cast<unsigned char>(c);
    return byte == 0 || (byte < 0x20 && byte != '\n' && byte != '\t' &&
                         byte != '\r' && byte != '\f' && byte != '\v');
  });
  if (binary)
    return Format::Onnx;
  return stablehlo::looksLikeStablehlo({data.data(), data.size()})
             ? Format::Stablehlo
             : Format::Mlir;
}

LogicalResult fail(const llvm::Twine &message) {
  llvm::errs() << "comm-opt: error: " << message << "\n";
  return failure();
}

/// Whether a location leads to a place in a text.
bool inText(Location loc) {
  bool found = false;
  loc->walk([&](Location inner) {
    found |= isa<FileLineColLoc>(inner);
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

/// What concerns a node of a model is said in the words of the model: file and
/// node, as the reader's own errors do. A place in a text is left to MLIR's
/// handler, which shows the line.
LogicalResult sayOfModel(Diagnostic &diagnostic) {
  if (inText(diagnostic.getLocation()))
    return failure();
  auto say = [](Diagnostic &part) {
    // The operation as MLIR prints it is no part of the model.
    if (part.str().find("see current operation") != std::string::npos)
      return;
    static constexpr StringLiteral kinds[] = {"note", "warning", "error",
                                              "remark"};
    std::string file = inputFile == "-" ? "<stdin>" : inputFile.getValue();
    llvm::errs() << "comm-opt: " << kinds[static_cast<int>(part.getSeverity())]
                 << ": ";
    // Readers of texts say the place themselves.
    if (!StringRef(part.str()).starts_with(file + ":")) {
      llvm::errs() << file << ": ";
      // Some say the node themselves, for who reads them at a place in a text.
      if (StringRef node = nodeName(part.getLocation());
          !node.empty() && !StringRef(part.str()).starts_with("node '"))
        llvm::errs() << "node '" << node << "': ";
    }
    llvm::errs() << part.str() << "\n";
  };
  say(diagnostic);
  for (Diagnostic &note : diagnostic.getNotes()) {
    if (inText(note.getLocation()))
      continue;
    say(note);
  }
  return success();
}

/// The input, or one file per rank where its name holds `{rank}`.
std::vector<std::string> perRankPaths(int64_t world) {
  size_t at = inputFile.find("{rank}");
  if (at == std::string::npos)
    return {inputFile};
  std::vector<std::string> paths;
  for (int64_t rank = 0; rank < world; ++rank) {
    std::string path = inputFile;
    paths.push_back(path.replace(at, 6, std::to_string(rank)));
  }
  return paths;
}

OwningOpRef<ModuleOp> readInput(MLIRContext &context,
                                const CompileOptions &options) {
  std::string message;
  auto buffer = openInputFile(perRankPaths(options.world).front(), &message);
  if (!buffer) {
    (void)fail(message);
    return {};
  }
  if (buffer->getBuffer().trim().empty()) {
    (void)fail(inputFile + ": is empty: there is nothing to order or prove");
    return {};
  }
  if (buffer->getBuffer().starts_with("\x7f"
                                      "ELF")) {
    (void)fail(inputFile + ": is a compiled program, which comm-run runs and "
                           "comm-doctor judges; give the model");
    return {};
  }
  Format format = sniff(buffer->getBuffer());
  if (importAs == "onnx")
    format = Format::Onnx;
  else if (importAs == "hlo")
    format = Format::Hlo;
  else if (importAs == "stablehlo")
    format = Format::Stablehlo;
  else if (importAs == "mlir")
    format = Format::Mlir;
  else if (!importAs.empty()) {
    (void)fail("--import takes onnx, hlo, stablehlo or mlir, not '" + importAs +
               "'");
    return {};
  } else if (StringRef(inputFile).ends_with(".onnx") &&
             format != Format::Onnx) {
    (void)fail(inputFile + ": this is text, not an ONNX model");
    return {};
  }
  if (format == Format::Onnx) {
    buffer.reset();
    std::vector<onnx::Model> models;
    try {
      for (const std::string &path : perRankPaths(options.world))
        models.push_back(onnx::readModel(path, options.read));
    } catch (const std::exception &error) {
      (void)fail(error.what());
      return {};
    }
    ImportOptions import;
    import.mesh = options.mesh;
    import.world = options.world;
    import.groupTypes = options.groupTypes;
    return importOnnx(&context, models, inputFile, import);
  }
  if (format == Format::Hlo || format == Format::Stablehlo) {
    HloImportOptions import;
    import.world = options.world > 1 ? options.world : 0;
    import.pureCalls = pureCalls;
    try {
      if (format == Format::Hlo)
        return importHlo(
            &context, hlo::parse(buffer->getBuffer().str(), inputFile), import);
      stablehlo::Notes notes;
      hlo::Module source =
          stablehlo::parse(buffer->getBuffer().str(), inputFile, notes);
      if (notes.globalOperations)
        llvm::errs()
            << "comm-opt: note: " << inputFile << ": " << notes.globalOperations
            << " operations lie outside sdy.manual_computation, at the "
               "global view; what a partitioner adds for them is not "
               "part of this program\n";
      return importHlo(&context, source, import);
    } catch (const hlo::Error &error) {
      (void)fail(error.what());
      return {};
    }
  }
  llvm::SourceMgr sources;
  sources.AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  context.getOrLoadDialect<comm::CommDialect>()->getWeightStore().setDirectory(
      inputFile == "-" ? std::string(".")
      : llvm::sys::path::parent_path(inputFile).empty()
          ? std::string(".")
          : llvm::sys::path::parent_path(inputFile).str());
  ParserConfig config(&context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, config);
  if (!module)
    return {};
  // A mesh on the command line is for a module that has none yet.
  if (!options.mesh.empty()) {
    if (getPhase(*module) > Phase::Imported) {
      (void)fail(inputFile +
                 ": is already partitioned; drop --mesh, --tp and --dp");
      return {};
    }
    Builder builder(&context);
    SmallVector<Attribute> mesh;
    for (auto &[name, size] : options.mesh)
      mesh.push_back(builder.getArrayAttr(
          {builder.getStringAttr(name), builder.getI64IntegerAttr(size)}));
    (*module)->setAttr("comm.mesh", builder.getArrayAttr(mesh));
    (*module)->setAttr("comm.world", builder.getI64IntegerAttr(options.world));
  }
  return module;
}

/// `o` written as MLIR: parameters go to a file beside it.
LogicalResult writeMlir(ModuleOp module) {
  bool toFile =
      outputFile != "-" && !StringRef(outputFile).starts_with("/dev/");
  if (toFile && getPhase(module) != Phase::Lowered) {
    llvm::SmallString<256> weights(outputFile);
    llvm::sys::path::replace_extension(weights, "weights");
    std::string error = writeReferencedWeights(
        module, std::string(weights), llvm::sys::path::filename(weights).str());
    if (!error.empty())
      return fail(error);
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  OpPrintingFlags flags;
  flags.enableDebugInfo(/*enable=*/toFile, /*prettyForm=*/false);
  // By the parser or behind the last pass.
  flags.assumeVerified();
  module.print(os, flags);
  os << "\n";
  std::string error = writeFile(outputFile, text);
  return error.empty() ? success() : fail(error);
}

LogicalResult writeOutput(ModuleOp module) {
  std::string error;
  module->removeAttr("comm.explain");
  module->removeAttr("comm.explain_collect");
  if (emit == "mlir")
    return writeMlir(module);
  if (emit == "plan") {
    FailureOr<plan::Plan> plan =
        buildPlan(module, getPhase(module) >= Phase::Planned);
    if (failed(plan))
      return failure();
    // Where nothing has verified the module, what is written may be what no
    // reader takes.
    plan::Plan back;
    if (!plan::parse(plan::serialize(*plan), back, error))
      return module.emitError("its plan is not valid: ") << error;
    error = writeFile(outputFile, plan::toJson(*plan) + "\n");
  } else if (emit == "hlo") {
    std::string text = exportHlo(module, error);
    if (error.empty())
      error = writeFile(outputFile, text);
  } else if (emit == "obj") {
    std::string object = emitObject(module, error);
    if (error.empty())
      error = writeFile(outputFile, object);
  } else if (outputFile == "-") {
    error = "--emit=so needs -o NAME.so";
  } else {
    error = emitSharedObject(module, outputFile);
  }
  return error.empty() ? success() : fail(error);
}

/// --verify-roundtrip: what is printed, in custom and in generic form, parses,
/// and prints the same again.
LogicalResult verifyRoundtrip(ModuleOp module) {
  for (bool generic : {false, true}) {
    OpPrintingFlags flags;
    flags.printGenericOpForm(generic);
    auto print = [&](ModuleOp what) {
      std::string text;
      llvm::raw_string_ostream os(text);
      what.print(os, flags);
      return text;
    };
    StringRef form = generic ? "generic" : "custom";
    std::string text = print(module);
    OwningOpRef<ModuleOp> again =
        parseSourceString<ModuleOp>(text, ParserConfig(module.getContext()));
    if (!again)
      return fail("--verify-roundtrip: what is printed in " + form +
                  " form does not parse");
    if (print(*again) != text)
      return fail("--verify-roundtrip: what is printed in " + form +
                  " form is parsed as something else");
  }
  return success();
}

/// The members of a program with bounded dimensions, and what owns them.
struct BoundedProgram {
  FamilyMembers members;
  SmallVector<OwningOpRef<ModuleOp>> owners;
  OwningOpRef<ModuleOp> text; ///< where they were read from MLIR

  void add(OwningOpRef<ModuleOp> module) {
    members.modules.push_back(*module);
    owners.push_back(std::move(module));
  }
};

/// `comm.dims`: [name, least, greatest] of each bounded dimension.
ArrayAttr dimsAttr(Builder &builder,
                   const std::vector<onnx::BoundedDim> &dims) {
  SmallVector<Attribute> list;
  for (const onnx::BoundedDim &dim : dims)
    list.push_back(builder.getArrayAttr({builder.getStringAttr(dim.name),
                                         builder.getI64IntegerAttr(dim.min),
                                         builder.getI64IntegerAttr(dim.max)}));
  return builder.getArrayAttr(list);
}

/// Read an ONNX model at the sizes of its members.
LogicalResult importMembers(MLIRContext &context, const CompileOptions &options,
                            BoundedProgram &program) {
  std::string message;
  auto buffer = openInputFile(inputFile, &message);
  if (inputFile.find("{rank}") != std::string::npos)
    return fail("a model per rank cannot have bounded dimensions; fix them "
                "with --dim NAME=N");
  if (!buffer)
    return fail(message);
  if (importAs.empty() ? sniff(buffer->getBuffer()) != Format::Onnx
                       : importAs != "onnx")
    return fail(inputFile + ": --dim NAME=MIN..MAX is for ONNX models");
  buffer.reset();
  int64_t batchMultiple = 1;
  for (auto &[name, size] : options.mesh)
    if (name == "dp")
      batchMultiple = size;
  ImportOptions import;
  import.mesh = options.mesh;
  import.world = options.world;
  import.groupTypes = options.groupTypes;
  Builder builder(&context);
  try {
    onnx::Family family(inputFile, options.read, options.bounded, options.world,
                        batchMultiple);
    program.members.dims = family.dims();
    program.members.points = family.points();
    for (size_t i = 0; i < family.points().size(); ++i) {
      std::vector<onnx::Model> models;
      models.push_back(family.member(i));
      OwningOpRef<ModuleOp> module =
          importOnnx(&context, models, inputFile, import);
      if (!module)
        return failure();
      (*module)->setAttr(kDims, dimsAttr(builder, family.dims()));
      (*module)->setAttr("comm.point",
                         builder.getDenseI64ArrayAttr(family.points()[i]));
      (*module)->setAttr(kSizesPending, builder.getUnitAttr());
      program.add(std::move(module));
    }
  } catch (const std::exception &error) {
    return fail(error.what());
  }
  return success();
}

/// A module that was saved with members in it: takes them out.
LogicalResult takeMembers(OwningOpRef<ModuleOp> text, BoundedProgram &program) {
  auto dims = (*text)->getAttrOfType<ArrayAttr>(kDims);
  for (Attribute entry : dims ? dims.getValue() : ArrayRef<Attribute>()) {
    auto dim = dyn_cast<ArrayAttr>(entry);
    auto name =
        dim && dim.size() == 3 ? dyn_cast<StringAttr>(dim[0]) : StringAttr();
    auto low = name ? dyn_cast<IntegerAttr>(dim[1]) : IntegerAttr();
    auto high = low ? dyn_cast<IntegerAttr>(dim[2]) : IntegerAttr();
    if (!high || low.getInt() < 0 || high.getInt() < low.getInt())
      return fail("comm.dims is a list of [name, least, greatest]");
    program.members.dims.push_back(
        {name.getValue().str(), low.getInt(), high.getInt()});
  }
  for (ModuleOp member : text->getOps<ModuleOp>()) {
    auto point = member->getAttrOfType<DenseI64ArrayAttr>("comm.point");
    if (!point ||
        static_cast<size_t>(point.size()) != program.members.dims.size())
      return fail("a member of a program with bounded dimensions says by "
                  "comm.point for which sizes it is");
    program.members.points.emplace_back(point.asArrayRef());
    program.add(ModuleOp(member->clone()));
  }
  if (program.members.points.size() < 3)
    return fail("a program with bounded dimensions has at least three members");
  return success();
}

/// All members in one module, as text.
LogicalResult writeMembers(BoundedProgram &program) {
  ModuleOp first = program.members.modules[0];
  Builder builder(first.getContext());
  OwningOpRef<ModuleOp> top = ModuleOp::create(builder.getUnknownLoc());
  for (StringRef name : {"comm.mesh", "comm.name", "comm.phase", "comm.world"})
    if (Attribute attr = first->getAttr(name))
      (*top)->setAttr(name, attr);
  (*top)->setAttr(kDims, dimsAttr(builder, program.members.dims));
  for (auto [i, owner] : llvm::enumerate(program.owners)) {
    (*owner)->removeAttr("comm.explain");
    (*owner)->setAttr("sym_name", builder.getStringAttr("member" + Twine(i)));
    top->push_back(owner.release());
  }
  return writeMlir(*top);
}

LogicalResult runBounded(MLIRContext &context, const CompileOptions &options,
                         PassManager &manager, BoundedProgram &program) {
  if (emit == "hlo")
    return fail(
        "--emit=hlo needs fixed dimensions; fix them with --dim NAME=N");
  FamilyMembers &members = program.members;
  const bool artefact = emit == "so" || emit == "obj";
  StringRef stem = llvm::sys::path::stem(
      outputFile == "-" || outputFile == "/dev/null" ? inputFile : outputFile);
  auto runAll = [&](PassManager &passes) {
    for (auto [i, module] : llvm::enumerate(members.modules)) {
      // What is said of one member is said of all.
      std::unique_ptr<ScopedDiagnosticHandler> quiet;
      if (i)
        quiet = std::make_unique<ScopedDiagnosticHandler>(
            &context, [](Diagnostic &diagnostic) {
              return success(
                  diagnostic.getSeverity() == DiagnosticSeverity::Warning ||
                  diagnostic.getSeverity() == DiagnosticSeverity::Remark);
            });
      if (failed(passes.run(module)))
        return failure();
      if (i > 0)
        continue;
      // All members are split like the first one, and do what it decided.
      for (StringRef name :
           {StringRef(partition::kSolutions), StringRef(kChoices)})
        if (Attribute attr = module->getAttr(name))
          for (ModuleOp other : members.modules)
            other->setAttr(name, attr);
      for (ModuleOp other : llvm::drop_begin(members.modules))
        other->setAttr(kFollows, UnitAttr::get(&context));
    }
    for (ModuleOp module : members.modules) {
      module->removeAttr(kChoices);
      module->removeAttr(kFollows);
      if (getPhase(module) >= Phase::Partitioned)
        module->removeAttr(partition::kSolutions);
    }
    return success();
  };
  for (auto [i, module] : llvm::enumerate(members.modules)) {
    module->setAttr("comm.name", StringAttr::get(&context, stem));
    if (explainOption && i == 0)
      module->setAttr("comm.explain", UnitAttr::get(&context));
  }
  if (failed(runAll(manager)))
    return failure();
  if (artefact) {
    PassManager planned(&context);
    PipelineOptions standard;
    buildPipeline(planned, standard);
    if (failed(runAll(planned)))
      return failure();
  }
  // Bufferized, and waiting for the sizes of buffers.
  if (members.modules[0]->hasAttr(kSizesPending) &&
      getPhase(members.modules[0]) == Phase::Planned) {
    if (failed(shareBufferSizes(members)))
      return failure();
    for (ModuleOp module : members.modules)
      setPhase(module, Phase::Ordered);
    PassManager placed(&context);
    placed.addPass(createCommPlanWorkspace());
    placed.addPass(createCommVerifyWorkspace());
    placed.addPass(createCommVerifyOrder());
    if (failed(runAll(placed)))
      return failure();
  }
  if (summaryOption) {
    llvm::errs() << "bounded dimensions; collectives and bytes at "
                 << onnx::describePoint(members.dims, members.points[0])
                 << ", the arena for their maximum\n";
    printSummary(members.modules[0], llvm::errs());
  }
  if (emit == "plan") {
    std::vector<plan::Plan> plans;
    for (ModuleOp module : members.modules) {
      FailureOr<plan::Plan> plan =
          buildPlan(module, getPhase(module) >= Phase::Planned);
      if (failed(plan))
        return failure();
      plans.push_back(std::move(*plan));
    }
    FailureOr<plan::Plan> plan = mergePlans(members, std::move(plans));
    if (failed(plan))
      return failure();
    std::string error = writeFile(outputFile, plan::toJson(*plan) + "\n");
    return error.empty() ? success() : fail(error);
  }
  if (!artefact && getPhase(members.modules[0]) != Phase::Lowered &&
      !members.modules[0]->hasAttr(kToLower))
    return writeMembers(program);
  for (ModuleOp module : members.modules)
    module->removeAttr(kToLower);
  PassManager lowered(&context);
  PipelineOptions rest;
  rest.to = "lowered";
  buildPipeline(lowered, rest);
  if (failed(runAll(lowered)) || failed(mergeLowered(members)))
    return failure();
  return writeOutput(members.modules[0]);
}

/// --simulate and --report.
LogicalResult show(ModuleOp module, ArrayRef<Explanation> explanations) {
  if (!simulateOption && reportOption.empty())
    return success();
  FailureOr<Prediction> prediction =
      predict(module, topologyOption, /*spans=*/!reportOption.empty());
  if (failed(prediction))
    return failure();
  if (simulateOption)
    printPrediction(*prediction, llvm::outs());
  if (reportOption.empty())
    return success();
  std::string trace, error;
  if (!reportTraceOption.empty()) {
    auto buffer = openInputFile(reportTraceOption, &error);
    if (!buffer)
      return fail(error);
    trace = buffer->getBuffer().str();
  }
  std::string page =
      makeReport(module, *prediction, explanations, trace, error);
  if (!error.empty())
    return fail(error);
  error = writeFile(reportOption, page);
  return error.empty() ? success() : fail(error);
}

LogicalResult run(DialectRegistry &registry, const MlirOptMainConfig &config) {
  std::string error;
  CompileOptions options = collectCompileOptions(error);
  if (!error.empty())
    return fail(error);
  if (emit != "mlir" && emit != "hlo" && emit != "plan" && emit != "obj" &&
      emit != "so")
    return fail("--emit takes mlir, hlo, plan, obj or so, not '" + emit + "'");

  if (!reportTraceOption.empty() && reportOption.empty())
    return fail("--report-trace needs --report");
  if (!topologyOption.empty() && !simulateOption && reportOption.empty() &&
      options.microBatches)
    return fail("--topology needs --simulate or --report; passes take "
                "machine=FILE");

  auto ownContext =
      std::make_unique<MLIRContext>(registry, MLIRContext::Threading::DISABLED);
  MLIRContext &context = *ownContext;
  context.allowUnregisteredDialects(config.shouldAllowUnregisteredDialects());
  context.loadDialect<comm::CommDialect, onnxir::OnnxDialect>();
  llvm::SourceMgr sources;
  SourceMgrDiagnosticHandler handler(sources, &context, llvm::errs());
  ScopedDiagnosticHandler ofModel(&context, sayOfModel);
  // The passes' decisions come as remarks; everything else goes on.
  std::vector<Explanation> explanations;
  ScopedDiagnosticHandler decisions(&context, [&](Diagnostic &diagnostic) {
    std::string text = diagnostic.str();
    if (diagnostic.getSeverity() != DiagnosticSeverity::Remark ||
        !StringRef(text).starts_with("explain: "))
      return failure();
    explanations.push_back(parseExplanation(text));
    return success();
  });
  BoundedProgram bounded;
  OwningOpRef<ModuleOp> module;
  if (!options.bounded.empty()) {
    bool stages = llvm::any_of(options.mesh, [](const auto &axis) {
      return axis.first == "pp" && axis.second > 1;
    });
    if (stages || options.microBatches != 1)
      return fail("pipeline stages do not go with bounded dimensions; fix each "
                  "with --dim NAME=N");
    if (simulateOption || !reportOption.empty())
      return fail(
          "--simulate and --report are of one choice of sizes; fix each "
          "bounded dimension with --dim NAME=N");
    if (failed(importMembers(context, options, bounded)))
      return failure();
  } else {
    module = readInput(context, options);
    if (!module)
      return failure();
    if ((*module)->hasAttr(kDims) && !(*module)->hasAttr("comm.point") &&
        failed(takeMembers(std::move(module), bounded)))
      return failure();
  }
  if (options.memory) {
    for (OwningOpRef<ModuleOp> &member : bounded.owners)
      setMemoryLimit(*member, *options.memory);
    if (module)
      setMemoryLimit(*module, *options.memory);
  }
  if (!bounded.owners.empty()) {
    PassManager manager(&context);
    if (failed(applyPassManagerCLOptions(manager)))
      return failure();
    applyDefaultTimingPassManagerCLOptions(manager);
    if (failed(config.setupPassPipeline(manager)))
      return failure();
    return runBounded(context, options, manager, bounded);
  }
  if (options.microBatches != 1) {
    if (getPhase(*module) > Phase::Imported)
      return fail(inputFile + ": is already partitioned; drop --micro-batches");
    if (options.microBatches)
      (*module)->setAttr(
          "comm.micro_batches",
          Builder(&context).getI64IntegerAttr(options.microBatches));
  }
  StringRef stem = llvm::sys::path::stem(
      outputFile == "-" || outputFile == "/dev/null" ? inputFile : outputFile);
  (*module)->setAttr("comm.name", StringAttr::get(&context, stem));
  if (explainOption)
    (*module)->setAttr("comm.explain", UnitAttr::get(&context));
  if (!reportOption.empty())
    (*module)->setAttr("comm.explain_collect", UnitAttr::get(&context));

  PassManager manager(&context);
  if (failed(applyPassManagerCLOptions(manager)))
    return failure();
  applyDefaultTimingPassManagerCLOptions(manager);
  if (failed(config.setupPassPipeline(manager)))
    return failure();
  if (!options.microBatches) {
    if (manager.empty())
      return fail("--micro-batches=auto compares compiled programs; it needs "
                  "--comm-pipeline");
    if (failed(chooseMicroBatches(*module, manager, topologyOption)))
      return failure();
  }
  // The artefact needs the rest of the way, whatever was asked for before it.
  if (emit == "so" || emit == "obj") {
    PipelineOptions rest;
    rest.to = "lowered";
    PassManager planned(&context);
    if (failed(manager.run(*module)))
      return failure();
    PipelineOptions first;
    buildPipeline(planned, first);
    if (failed(planned.run(*module)))
      return failure();
    if (summaryOption)
      printSummary(*module, llvm::errs());
    if (failed(show(*module, explanations)))
      return failure();
    PassManager lowered(&context);
    buildPipeline(lowered, rest);
    if (failed(lowered.run(*module)))
      return failure();
  } else {
    if (failed(manager.run(*module)))
      return failure();
    if (summaryOption)
      printSummary(*module, llvm::errs());
    if (failed(show(*module, explanations)))
      return failure();
  }
  if (config.shouldVerifyRoundtrip() && failed(verifyRoundtrip(*module)))
    return failure();
  // A prediction was asked for, and nothing else.
  if (simulateOption && outputFile == "-" && !outputFile.getNumOccurrences())
    return success();
  LogicalResult written = writeOutput(*module);
  // The process ends here: taking a large module apart operation by operation
  // would take as long as a pass. Leak checkers still reach it.
  llvm::BuryPointer(module.release().getAsOpaquePointer());
  llvm::BuryPointer(std::move(ownContext));
  return written;
}

/// Sets or drops the mark that makes passes explain, on each module that
/// MlirOptMain reads by itself.
struct ExplainPass : public PassWrapper<ExplainPass, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ExplainPass)
  explicit ExplainPass(bool on) : on(on) {}
  StringRef getArgument() const override { return "comm-explain"; }
  StringRef getDescription() const override {
    return "Let the passes up to the next one explain what they do";
  }
  void runOnOperation() override {
    if (on)
      getOperation()->setAttr("comm.explain", UnitAttr::get(&getContext()));
    else
      getOperation()->removeAttr("comm.explain");
  }
  bool on;
};

/// The test modes of mlir-opt, in mlir-opt's own driver: MLIR in, MLIR out, one
/// module after the other. What that driver cannot do is refused.
LogicalResult runTestMode(DialectRegistry &registry,
                          MlirOptMainConfig &config) {
  const std::pair<bool, StringRef> refused[] = {
      {emit != "mlir", "--emit"},
      {!importAs.empty() && importAs != "mlir", "--import"},
      {summaryOption, "--comm-summary"},
      {simulateOption, "--simulate"},
      {!reportOption.empty(), "--report"},
      {hasCompileOptions(), "an option that says for which mesh and shapes a "
                            "model is compiled"}};
  for (auto [given, name] : refused)
    if (given)
      return fail(name + " goes with neither --split-input-file nor "
                         "--verify-diagnostics; give one module at a time");
  if (explainOption) {
    MlirOptMainConfig plain = config;
    config.setPassPipelineSetupFn([plain](PassManager &manager) {
      manager.addPass(std::make_unique<ExplainPass>(true));
      if (failed(plain.setupPassPipeline(manager)))
        return failure();
      manager.addPass(std::make_unique<ExplainPass>(false));
      return success();
    });
  }
  std::string message;
  auto input = openInputFile(inputFile, &message);
  auto output = openOutputFile(outputFile, &message);
  if (!input || !output)
    return fail(message);
  LogicalResult result =
      MlirOptMain(output->os(), std::move(input), registry, config);
  if (succeeded(result))
    output->keep();
  return result;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A file that hits a size limit is a write error with a message, not a crash.
  std::signal(SIGXFSZ, SIG_IGN);
  registerAllPasses();
  registerConcordPasses();
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  registry.insert<comm::CommDialect, onnxir::OnnxDialect>();
  comm::registerBufferizationModels(registry);

  registerAsmPrinterCLOptions();
  registerMLIRContextCLOptions();
  registerPassManagerCLOptions();
  registerDefaultTimingManagerCLOptions();
  MlirOptMainConfig::registerCLOptions(registry);
  llvm::cl::AddExtraVersionPrinter([](llvm::raw_ostream &os) {
    os << "comm-opt, Concord " << CONCORD_VERSION_MAJOR << "."
       << CONCORD_VERSION_MINOR << "." << CONCORD_VERSION_PATCH
       << ", artefact ABI " << CONCORD_ABI_VERSION << "\n";
  });
  llvm::cl::ParseCommandLineOptions(
      argc, argv,
      "Concord's compiler: mlir-opt, and ONNX models in, "
      "artefacts out\n");
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects()) {
    for (StringRef name : registry.getDialectNames())
      llvm::outs() << name << "\n";
    return 0;
  }
  if (config.shouldListPasses()) {
    printRegisteredPasses();
    return 0;
  }
  if (config.shouldVerifyDiagnostics() || !config.inputSplitMarker().empty())
    return asMainReturnCode(runTestMode(registry, config));
  return asMainReturnCode(run(registry, config));
}
