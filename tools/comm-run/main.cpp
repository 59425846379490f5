//===- main.cpp - comm-run ------------------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compile if needed, check the artefact, start the ranks, gather what they
// made. Results go to standard output, everything else to standard error. Links
// no LLVM.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"
#include "Environment.h"
#include "Health.h"
#include "HostModes.h"
#include "Inputs.h"
#include "Job.h"
#include "Report.h"
#include "Shapes.h"
#include "common/CpuClass.h"
#include "common/Files.h"
#include "common/Npy.h"
#include "common/TensorFile.h"

#include "bootstrap/Launcher.h"

#include "diagnosis/Error.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>

namespace fs = std::filesystem;

namespace concord::tools {
namespace {

void checkArtefact(const Options &options, const Artefact &artefact,
                   const ProgramMeta &meta) {
  const std::string file =
      artefact.compiled ? options.program : artefact.path.string();
  if (options.ranks && options.ranks != meta.world)
    throw Error(file + ": compiled for " + std::to_string(meta.world) +
                (meta.world == 1 ? " rank" : " ranks") + ", but -n asks for " +
                std::to_string(options.ranks) + "; give -n " +
                std::to_string(meta.world) + " or leave -n out");
  if (meta.world > 64)
    throw Error(file + ": compiled for " + std::to_string(meta.world) +
                " ranks; comm-run starts at most 64 on one host");
  std::string cpu = cpuClass();
  if (!meta.targetCpu.empty() && meta.targetCpu != cpu)
    throw Error(file + ": compiled for " + meta.targetCpu +
                " processors, this one is " + cpu +
                "; compile the model again here");
  if (!meta.weights.empty()) {
    fs::path weights = artefact.path.parent_path() / meta.weights;
    std::error_code error;
    if (!fs::is_regular_file(weights, error))
      throw Error(weights.string() +
                  ": the program's weights are not there; "
                  "they lie beside " +
                  artefact.path.filename().string());
  }
}

void sayInputs(const ProgramMeta &meta,
               const std::vector<InputSources> &sources,
               const Options &options) {
  std::string drawn, zero;
  for (size_t i = 0; i < sources.size(); ++i) {
    bool anyDrawn = false, anyZero = false;
    for (const InputSource &source : sources[i]) {
      anyDrawn |= source.kind == InputSource::Kind::Drawn;
      anyZero |= source.kind == InputSource::Kind::Zero;
    }
    if (anyDrawn)
      drawn += (drawn.empty() ? "" : ", ") + meta.inputs[i].name;
    if (anyZero)
      zero += (zero.empty() ? "" : ", ") + meta.inputs[i].name;
  }
  if (!drawn.empty())
    std::fprintf(stderr,
                 "comm-run: not given, drawn from seed %llu (floats normal, "
                 "integers 0 or 1): %s\n",
                 static_cast<unsigned long long>(options.seed), drawn.c_str());
  if (!zero.empty())
    std::fprintf(stderr, "comm-run: states that begin as zeros: %s\n",
                 zero.c_str());
}

/// Outputs one after the other, so that only one is in memory at a time.
std::vector<OutputReport> takeOutputs(const Options &options, const Job &job,
                                      const ProgramMeta &meta) {
  std::vector<OutputReport> reports;
  std::map<std::string, std::string> fileNames;
  if (!options.outputDir.empty()) {
    std::error_code error;
    fs::create_directories(options.outputDir, error);
    if (error)
      throw Error(options.outputDir + ": cannot be made: " + error.message());
  }
  for (size_t i = 0; i < meta.outputs.size(); ++i) {
    checkInterrupted();
    const Entry &entry = meta.outputs[i];
    std::vector<HostTensor> tensors = job.readOutput(i);
    bool perRank = entry.kind == Entry::Kind::PerRank;
    for (size_t part = 0; part < tensors.size(); ++part) {
      const HostTensor &tensor = tensors[part];
      std::string name =
          perRank ? entry.name + "@" + std::to_string(part) : entry.name;
      OutputReport report = describeOutput(name, tensor);
      if (!options.outputDir.empty()) {
        // Two names may become one; the second gets its number.
        std::string safe = fileSafe(name);
        if (!fileNames.emplace(safe, name).second) {
          safe += "." + std::to_string(i);
          fileNames.emplace(safe, name);
        }
        report.file = fs::path(options.outputDir) / (safe + ".npy");
        writeNpy(report.file, tensor);
      }
      if (!options.expectDir.empty()) {
        report.expectedFile =
            findTensorFile(options.expectDir, name, "output", i);
        if (!report.expectedFile.empty())
          report.comparison =
              compare(tensor, readTensorFile(report.expectedFile), options.rtol,
                      options.atol);
      }
      printOutput(report, options.rtol, options.atol);
      if (!options.expectDir.empty() && report.expectedFile.empty())
        std::printf("  not compared: %s has no %s.npy, %s.pb, output_%zu.npy "
                    "or output_%zu.pb\n",
                    options.expectDir.c_str(), fileSafe(name).c_str(),
                    fileSafe(name).c_str(), i, i);
      reports.push_back(std::move(report));
    }
  }
  return reports;
}

/// mpirun, srun or torchrun may have started comm-run, once per rank: then it
/// starts no others. CONCORD_LAUNCHER=concord says that it shall.
std::optional<rt::LaunchedRank> startedAsRank() {
  try {
    std::optional<rt::LaunchedRank> found = rt::launchedHere();
    return found && found->world > 1 ? found : std::nullopt;
  } catch (const rt::Error &error) {
    throw Error(error.text);
  }
}

int runProgram(Options options) {
  std::optional<rt::LaunchedRank> launched = startedAsRank();
  int64_t member = launched ? launched->rank : -1;
  // One of them speaks for all.
  bool speaks = member <= 0;
  options.quiet = !speaks;
  if (int64_t mesh = launched ? meshSize(options) : 0;
      mesh && mesh != launched->world)
    throw Error("the mesh on the command line has " + std::to_string(mesh) +
                (mesh == 1 ? " rank" : " ranks") + ", but " +
                launched->launcher + " started " +
                std::to_string(launched->world));
  if (launched && options.ranks == 0 &&
      classify(options.program).kind != Source::Kind::Artefact)
    options.ranks = launched->world;
  // --explain and its like compile anew: for one's eyes, and not in a place
  // that the other ranks use.
  options.shared = launched.has_value();
  Artefact artefact = obtainArtefact(options);
  ProgramMeta meta = readMeta(artefact.path);
  checkArtefact(options, artefact, meta);
  if (launched && meta.world != launched->world)
    throw Error(
        options.program + ": compiled for " + std::to_string(meta.world) +
        (meta.world == 1 ? " rank" : " ranks") + ", but " + launched->launcher +
        " started " + std::to_string(launched->world));
  if (options.health && meta.gate != "hold")
    throw Error(options.program +
                ": has no health check; compile it with "
                "--comm-pipeline=health=true, or give --health the model");
  std::vector<InputSources> sources = resolveInputs(options, meta);
  std::vector<Entry> fills;
  if (std::string sizes = chooseSizes(options, sources, meta, fills);
      !sizes.empty()) {
    if (speaks)
      std::fprintf(stderr, "comm-run: sizes: %s\n", sizes.c_str());
  } else if (meta.dims.empty() && !artefact.compiled &&
             !options.compile.empty())
    throw Error(options.program +
                ": has no bounded dimensions, so --dim cannot "
                "be applied; compile the model with "
                "--dim NAME=MIN..MAX");
  if (speaks)
    sayInputs(meta, sources, options);

  Job job(options, artefact.path, meta, member);
  if (options.keep)
    std::fprintf(stderr, "comm-run: the job's folder is %s\n",
                 job.folder().c_str());
  job.writeInputs(sources, fills);
  if (options.verbose && member < 0)
    std::fprintf(stderr, "comm-run: starting %lld ranks of %s\n",
                 static_cast<long long>(meta.world), artefact.path.c_str());
  else if (options.verbose)
    std::fprintf(stderr, "comm-run: rank %lld of %d by %s, of %s\n",
                 static_cast<long long>(member), launched->world,
                 launched->launcher.c_str(), artefact.path.c_str());
  RunResult run = job.run();
  if (!speaks) {
    if (run.exitCode != ExitOk)
      std::fprintf(stderr, "comm-run: %s\n", run.message.c_str());
    return run.exitCode;
  }

  std::vector<OutputReport> outputs;
  RankStats stats;
  if (run.exitCode == ExitOk) {
    try {
      outputs = takeOutputs(options, job, meta);
      stats = readStats(job, meta);
    } catch (const RankError &error) {
      run.exitCode = ExitRank;
      run.message = error.what();
    }
  }
  int exitCode = run.exitCode;
  if (exitCode == ExitOk) {
    const Latency &latency = stats.latency;
    if (options.repeat > 1)
      std::printf("latency of %zu steps on %lld rank%s: min %.3f ms, median "
                  "%.3f ms, p99 %.3f ms\n",
                  latency.seconds.size(), static_cast<long long>(meta.world),
                  meta.world == 1 ? "" : "s", latency.least * 1e3,
                  latency.median * 1e3, latency.p99 * 1e3);
    if (!options.traceFile.empty()) {
      writeTrace(job, meta, artefact.path, options.traceFile);
      std::fprintf(stderr,
                   "comm-run: wrote %s; open it at "
                   "https://ui.perfetto.dev\n",
                   options.traceFile.c_str());
    }
    if (options.health) {
      auto [small, large] = healthOf(stats);
      // Within a host and between hosts are two things.
      size_t hosts = hostsOf(stats);
      std::string where =
          hosts > 1 ? "-slot-" + std::to_string(hosts) + "-hosts" : "-slot";
      if (judgeHealth(options, meta.world, small, large, 1 << 20, where,
                      stats.health) != ExitOk)
        exitCode = ExitMismatch;
    }
    size_t compared = 0;
    for (const OutputReport &output : outputs) {
      compared += !output.expectedFile.empty();
      if (!output.expectedFile.empty() && !output.comparison.ok)
        exitCode = ExitMismatch;
    }
    if (!options.expectDir.empty() && compared == 0 && !outputs.empty())
      throw Error("--expect " + options.expectDir +
                  ": has a file for none of the outputs " +
                  listNames(meta.outputs));
  } else {
    std::fprintf(stderr, "comm-run: %s\n", run.message.c_str());
    if (!run.lastWords.empty() && meta.world > 1)
      std::fprintf(stderr, "comm-run: last words of rank %d:\n%s",
                   run.failedRank, run.lastWords.c_str());
  }
  if (!options.jsonFile.empty())
    writeJson(options.jsonFile, options, artefact, meta, sources, outputs,
              stats, run, exitCode);
  return exitCode;
}

int guardedMain(int argc, char **argv) {
  try {
    if (isHostMode({argv + 1, argv + argc}))
      return runHostMode({argv + 1, argv + argc});
    Options options = parseOptions({argv + 1, argv + argc});
    if (options.answered) {
      std::fputs(options.answer.c_str(), stdout);
      return ExitOk;
    }
    if (options.env)
      return printEnvironment();
    catchSignals();
    if (options.program.empty())
      return checkHealth(options);
    return runProgram(options);
  } catch (const Interrupted &stop) {
    std::fprintf(stderr, "comm-run: %s\n", stop.what());
    return 128 + stop.signal;
  } catch (const CompileError &error) {
    std::fprintf(stderr, "comm-run: %s\n", error.what());
    return ExitCompile;
  } catch (const RankError &error) {
    std::fprintf(stderr, "comm-run: %s\n", error.what());
    return ExitRank;
  } catch (const std::bad_alloc &) {
    std::fprintf(stderr, "comm-run: out of memory\n");
    return ExitUsage;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "comm-run: error: %s\n", error.what());
    return ExitUsage;
  }
}

} // namespace
} // namespace concord::tools

int main(int argc, char **argv) {
  return concord::tools::guardedMain(argc, argv);
}
