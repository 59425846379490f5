//===- Options.cpp - The command line of comm-run -------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Compile options are set aside before CLI11 sees the rest: otherwise the value
// of an option that it does not know would be taken for the program.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include "common/HostTensor.h"
#include "concord/artefact.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>

namespace concord::tools {

namespace {

/// Options of comm-opt whose value may stand in the next argument.
constexpr std::array<std::string_view, 14> kCompileOptions = {"--mesh",
                                                              "--tp",
                                                              "--dp",
                                                              "--pp",
                                                              "--ep",
                                                              "--dim",
                                                              "--shape",
                                                              "--const",
                                                              "--world",
                                                              "--group-type",
                                                              "--import",
                                                              "--report",
                                                              "--micro-batches",
                                                              "--memory"};

constexpr std::array<std::string_view, 27> kOwnOptions = {
    "--ranks",    "--input",     "--input-dir", "--seed",
    "--state",    "--expect",    "--rtol",      "--atol",
    "--repeat",   "--warmup",    "--trace",     "--output-dir",
    "--timeout",  "--json",      "--keep",      "--verbose",
    "--no-cache", "--help",      "--version",   "--env",
    "--help-all", "--slots",     "--health",    "--baseline",
    "--renew",    "--tolerance", "--"};

template <size_t N>
bool contains(const std::array<std::string_view, N> &list,
              std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

const char *const kDescription = "comm-run: compile a model for N ranks if "
                                 "needed, start N processes, run it, "
                                 "and\ngather, save or check what comes out.";

const char *const kFooter = R"(
PROGRAM is an .onnx model, a set of per-rank models 'model_{rank}.onnx', an
.mlir file of comm-opt, or a compiled .so. All but the .so are compiled by the
comm-opt beside this program, once: the result is kept in $CONCORD_CACHE_DIR
(else $XDG_CACHE_HOME/concord, else ~/.cache/concord).

On a model that is not partitioned yet, -n N means --tp N unless --mesh, --tp,
--dp, --pp or --ep says otherwise. A partitioned program has its number of ranks.

Compile options: any option of comm-opt. --mesh, --tp, --dp, --pp, --ep, --dim,
--shape, --const, --world, --group-type, --import, --report and --micro-batches
take their value as `--tp 2` or `--tp=2`; for any other write `--name=value`.

Inputs come from .npy, .pb (ONNX TensorProto) or .raw files, or are made:
`--input NAME=fill:1` sets every element, `--input NAME=range:0..30522` draws
integers in [0, 30522). An input that is not given is drawn from --seed: floats
from the normal distribution, integers 0 or 1; a --state input begins as zeros.
A program compiled with --dim seq=1..512 runs at the sizes of its input files, or
of --dim seq=37 when it is a .so; a state that grows begins with its least size.

To look at this host: `comm-run --topology`, `comm-run --preflight`, each with a
--help of its own, and `comm-run --health`.

Exit codes: 0 ok; 1 a difference from --expect; 2 wrong usage or unusable input;
3 compiling failed; 4 a rank failed; 5 --timeout ran out; 128 + signal when
interrupted.)";

std::pair<std::string, std::string>
splitAssignment(const std::string &text, const char *option, const char *form) {
  size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw Error(std::string(option) + " " + text + ": write " + option + " " +
                form);
  return {text.substr(0, at), text.substr(at + 1)};
}

int64_t positive(const std::string &text, const std::string &what) {
  if (text.empty() || text.size() > 6 ||
      text.find_first_not_of("0123456789") != std::string::npos ||
      std::stoll(text) == 0)
    throw Error(what + ": '" + text + "' is not a positive number");
  return std::stoll(text);
}

} // namespace

Options parseOptions(std::vector<std::string> arguments) {
  Options options;
  std::vector<std::string> own;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i];
    std::string name = argument.substr(0, argument.find('='));
    if (!argument.starts_with("--") || contains(kOwnOptions, name)) {
      own.push_back(argument);
      continue;
    }
    options.compile.push_back(argument);
    if (name.size() == argument.size() && contains(kCompileOptions, name)) {
      if (i + 1 == arguments.size())
        throw Error(name + " needs a value");
      options.compile.push_back(arguments[++i]);
    }
  }

  CLI::App app(kDescription, "comm-run");
  app.footer(kFooter);
  bool version = false;
  std::vector<std::string> states, programs;
  app.add_option("PROGRAM", programs, "what to run");
  app.add_option("-n,--ranks", options.ranks, "number of ranks (processes)")
      ->check(CLI::Range(1, 64));
  app.add_option("--input", options.inputs,
                 "an input: NAME=FILE, NAME@RANK=FILE, NAME=fill:V, "
                 "NAME=range:LOW..HIGH (repeatable)")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--input-dir", options.inputDir,
                 "folder with NAME.npy, NAME.pb or input_I.pb per input");
  app.add_option("--seed", options.seed, "for inputs that are not given");
  app.add_option("--state", states,
                 "INPUT=OUTPUT: after a step the output becomes the input of "
                 "the next (repeatable)")
      ->take_all()
      ->expected(1)
      ->allow_extra_args(false);
  app.add_option("--output-dir", options.outputDir,
                 "write every output there as NAME.npy");
  app.add_option("--expect", options.expectDir,
                 "folder with OUTPUT.npy or output_I.pb to compare with");
  app.add_option("--rtol", options.rtol, "relative tolerance (1e-3)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--atol", options.atol, "absolute tolerance (1e-5)")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--repeat", options.repeat, "steps to run and to time")
      ->check(CLI::Range(int64_t(1), int64_t(1) << 32));
  app.add_option("--warmup", options.warmup,
                 "steps before them (1 with --repeat, 0 with --state)")
      ->check(CLI::Range(int64_t(0), int64_t(1) << 32));
  app.add_option("--slots", options.slots,
                 "of a program with several issuers: the share of the steps in "
                 "which optional slots are asked for (1)")
      ->check(CLI::Range(0.0, 1.0));
  app.add_flag("--health", options.health,
               "compile the program with a health check and ask for it in "
               "--slots of the steps; without PROGRAM, of this host");
  app.add_option("--baseline", options.baseline,
                 "of --health: a file; one that is not there is made (a file "
                 "per host and number of ranks in the cache)");
  app.add_flag("--renew", options.renew, "of --health: store a new baseline");
  app.add_option("--tolerance", options.tolerance,
                 "of --health: times as slow as the baseline is degraded (2)")
      ->check(CLI::Range(1.0, 1000.0));
  app.add_option("--timeout", options.timeout,
                 "seconds until the run is stopped")
      ->check(CLI::PositiveNumber);
  app.add_option("--trace", options.traceFile,
                 "write a trace for Perfetto or chrome://tracing");
  app.add_option("--json", options.jsonFile, "write all results as JSON");
  app.add_flag("--keep", options.keep, "keep the job's folder, and name it");
  app.add_flag("--verbose", options.verbose, "say what is done");
  app.add_flag("--no-cache", options.noCache, "compile even if cached");
  app.add_flag("--env", options.env, "list the environment variables");
  app.add_flag("--version", version, "version of Concord and of its ABI");

  // CLI11 takes arguments from the back.
  std::reverse(own.begin(), own.end());
  try {
    app.parse(own);
  } catch (const CLI::CallForHelp &) {
    options.answered = true;
    options.answer = app.help();
    return options;
  } catch (const CLI::ParseError &error) {
    throw Error(std::string(error.what()) + "; see comm-run --help");
  }
  if (version) {
    options.answered = true;
    options.answer = "comm-run, Concord " CONCORD_TOOLS_VERSION
                     ", artefact ABI " +
                     std::to_string(CONCORD_ARTEFACT_ABI_VERSION) + "\n";
    return options;
  }
  if (options.env)
    return options;
  if (programs.empty() && options.health)
    return options;
  if (programs.empty())
    throw Error("no PROGRAM given; see comm-run --help");
  if (programs.size() > 1)
    throw Error("one PROGRAM at a time: '" + programs[0] + "' and '" +
                programs[1] +
                "'; the value of a compile option is written --name=value");
  options.program = programs.front();
  for (const std::string &state : states)
    options.states.push_back(splitAssignment(state, "--state", "INPUT=OUTPUT"));
  for (const std::string &input : options.inputs)
    splitAssignment(input, "--input", "NAME=FILE");
  // Enough for a median, and seldom enough to leave the program its time.
  if (options.health && app.count("--slots") == 0)
    options.slots = std::min(1.0, 40 / double(options.repeat));
  if (options.warmup < 0)
    options.warmup = options.repeat > 1 && options.states.empty() ? 1 : 0;
  return options;
}

std::string compileOption(const Options &options, const std::string &name) {
  std::string value;
  for (size_t i = 0; i < options.compile.size(); ++i) {
    const std::string &argument = options.compile[i];
    if (argument == name && i + 1 < options.compile.size())
      value = options.compile[i + 1];
    else if (argument.starts_with(name + "="))
      value = argument.substr(name.size() + 1);
  }
  return value;
}

int64_t meshSize(const Options &options) {
  int64_t size = 0;
  auto multiply = [&](int64_t factor) {
    size = size ? size * factor : factor;
    if (size > 1 << 16)
      throw Error("the mesh has more than 65536 ranks");
  };
  for (const char *name : {"--tp", "--dp", "--pp", "--ep"})
    if (std::string value = compileOption(options, name); !value.empty())
      multiply(positive(value, name));
  std::string mesh = compileOption(options, "--mesh");
  for (size_t at = 0; at < mesh.size();) {
    size_t end = std::min(mesh.find(',', at), mesh.size());
    std::string axis = mesh.substr(at, end - at);
    size_t equals = axis.find('=');
    if (equals == std::string::npos || equals == 0)
      throw Error("--mesh " + mesh + ": write --mesh NAME=SIZE,NAME=SIZE");
    multiply(positive(axis.substr(equals + 1), "--mesh " + mesh));
    at = end + 1;
  }
  // A model with collectives of its own has ranks and no mesh.
  if (std::string world = compileOption(options, "--world");
      size == 0 && !world.empty())
    size = positive(world, "--world");
  return size;
}

} // namespace concord::tools
