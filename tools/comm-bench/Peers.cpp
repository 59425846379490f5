//===- Peers.cpp - Other libraries to compare with ------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Finding, compiling and starting the peers' programs.
//
//===----------------------------------------------------------------------===//

#include "Peers.h"
#include "Driver.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>

using namespace concord::bench;
namespace fs = std::filesystem;

namespace {

struct Source {
  const char *name, *text;
};
/// Made from bench/peers/ by CMake.
constexpr Source kSources[] = {
#include "PeerSources.inc"
};

struct Peer {
  const char *name;
  const char *source;
  const char *compiler; ///< a wrapper, or null: a C++ compiler
  const char *launcher; ///< or null
  const char *header;   ///< that must be there, or null
  const char *libraries;
  const char *packages; ///< where it comes from
};
constexpr char kOneCclPackages[] =
    "a Python environment with it (pip install oneccl-devel), which CCL_ROOT "
    "or VIRTUAL_ENV names";
constexpr Peer kPeers[] = {
    {"openmpi", "mpi.cpp", "mpicxx.openmpi", "mpirun.openmpi", nullptr, "",
     "apt install openmpi-bin libopenmpi-dev g++"},
    {"mpich", "mpi.cpp", "mpicxx.mpich", "mpirun.mpich", nullptr, "",
     "apt install mpich libmpich-dev g++"},
    {"gloo", "gloo.cpp", nullptr, nullptr, "/usr/include/gloo/allreduce.h",
     "-lgloo -lpthread", "apt install libgloo-dev g++"},
    // Of the environment that oneCclRoot finds.
    {"oneccl", "oneccl.cpp", nullptr, nullptr, nullptr,
     "-lccl -Wl,--allow-shlib-undefined", kOneCclPackages},
};

const Peer *find(const std::string &name) {
  for (const Peer &peer : kPeers)
    if (name == peer.name)
      return &peer;
  return nullptr;
}

std::string inPath(const std::string &name) {
  const char *path = std::getenv("PATH");
  std::string list = path ? path : "/usr/bin:/bin";
  for (size_t at = 0; at <= list.size();) {
    size_t end = std::min(list.find(':', at), list.size());
    std::string candidate = list.substr(at, end - at) + "/" + name;
    if (::access(candidate.c_str(), X_OK) == 0)
      return candidate;
    at = end + 1;
  }
  return "";
}

/// The environment that oneCCL is installed in; "" if there is none.
std::string oneCclRoot() {
  for (const char *name : {"CCL_ROOT", "VIRTUAL_ENV"})
    if (const char *root = std::getenv(name);
        root && fs::exists(fs::path(root) / "include/oneapi/ccl.hpp") &&
        fs::exists(fs::path(root) / "bin/mpiexec.hydra"))
      return root;
  return "";
}

std::string cxxCompiler() {
  for (const char *name : {"g++", "clang++-22", "clang++", "c++"})
    if (!inPath(name).empty())
      return name;
  throw Failure("compiling a peer needs a C++ compiler: apt install g++");
}

/// The same folder as that of compiled programs (comm-run --env).
fs::path cacheFolder() {
  auto value = [](const char *name) {
    const char *text = std::getenv(name);
    return std::string(text ? text : "");
  };
  fs::path folder;
  if (!value("CONCORD_CACHE_DIR").empty())
    folder = value("CONCORD_CACHE_DIR");
  else if (!value("XDG_CACHE_HOME").empty())
    folder = fs::path(value("XDG_CACHE_HOME")) / "concord";
  else if (!value("HOME").empty())
    folder = fs::path(value("HOME")) / ".cache" / "concord";
  else
    throw Failure("no folder for compiled peers: set CONCORD_CACHE_DIR");
  folder /= "peers";
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw Failure(folder.string() + ": " + error.message() +
                  "; CONCORD_CACHE_DIR names another folder");
  return folder;
}

int runQuietly(const std::vector<std::string> &arguments,
               const std::string &log) {
  std::vector<char *> pointers;
  for (const std::string &argument : arguments)
    pointers.push_back(const_cast<char *>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t child = ::fork();
  if (child == 0) {
    if (!std::freopen(log.c_str(), "w", stdout) || ::dup2(1, 2) < 0)
      ::_exit(126);
    // The wrappers call the compiler that their package was built with.
    if (inPath("g++").empty()) {
      ::setenv("OMPI_CXX", cxxCompiler().c_str(), 1);
      ::setenv("MPICH_CXX", cxxCompiler().c_str(), 1);
    }
    ::execvp(pointers[0], pointers.data());
    ::_exit(127);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) < 0)
    return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

} // namespace

bool concord::bench::knownPeer(const std::string &name) { return find(name); }

std::string concord::bench::peerNames() {
  std::string names;
  for (const Peer &peer : kPeers)
    names += (names.empty() ? "" : ", ") + std::string(peer.name);
  return names;
}

static std::string buildPeer(const std::string &name, bool module) {
  const Peer &peer = *find(name);
  std::string missing;
  for (const char *program : {peer.launcher, peer.compiler})
    if (program && inPath(program).empty())
      missing += (missing.empty() ? "" : " and ") + std::string(program);
  if (peer.header && !fs::exists(peer.header))
    missing = peer.header;
  std::string root;
  if (name == "oneccl" && (root = oneCclRoot()).empty())
    missing = "oneCCL with its headers";
  if (!missing.empty())
    throw Failure("--peer " + name + " needs " + missing + ": " +
                  peer.packages);
  // The name has a hash of the sources, so that old programs are not used.
  uint64_t hash = 0xcbf29ce484222325;
  for (const Source &source : kSources)
    for (const char *at = source.text; *at; ++at)
      hash = (hash ^ uint8_t(*at)) * 0x100000001b3;
  for (char c : root)
    hash = (hash ^ uint8_t(c)) * 0x100000001b3;
  char hex[24];
  std::snprintf(hex, sizeof hex, "%016llx", (unsigned long long)hash);
  fs::path folder = cacheFolder();
  fs::path program = folder / (name + "-" + hex + (module ? ".so" : ""));
  if (fs::exists(program))
    return program.string();
  std::string pattern = (folder / "compile-XXXXXX").string();
  if (!::mkdtemp(pattern.data()))
    throw Failure(pattern + ": " + std::strerror(errno));
  fs::path place = pattern;
  for (const Source &source : kSources)
    std::ofstream(place / source.name) << source.text;
  std::fprintf(stderr, "comm-bench: compiling the peer %s into %s\n",
               name.c_str(), program.c_str());
  std::vector<std::string> arguments = {peer.compiler ? peer.compiler
                                                      : cxxCompiler(),
                                        "-O2",
                                        "-std=c++17",
                                        "-o",
                                        (place / "program").string(),
                                        (place / peer.source).string()};
  if (module)
    arguments.insert(arguments.end(),
                     {"-shared", "-fPIC", "-DCONCORD_BENCH_MODULE"});
  if (!root.empty())
    arguments.insert(arguments.end(),
                     {"-I" + root + "/include", "-L" + root + "/lib"});
  std::string libraries = peer.libraries;
  for (size_t at = 0; at < libraries.size();) {
    size_t end = std::min(libraries.find(' ', at), libraries.size());
    arguments.push_back(libraries.substr(at, end - at));
    at = end + 1;
  }
  std::string log = (place / "log").string();
  if (runQuietly(arguments, log) != 0) {
    std::ifstream stream(log);
    std::string text((std::istreambuf_iterator<char>(stream)), {});
    throw Failure("--peer " + name + " could not be compiled (it needs " +
                  peer.packages + "):\n" + text.substr(0, 4000));
  }
  // Another comm-bench may do the same: the rename is atomic.
  fs::rename(place / "program", program);
  fs::remove_all(place);
  return program.string();
}

std::string concord::bench::peerProgram(const std::string &name) {
  return buildPeer(name, false);
}
std::string concord::bench::peerModule(const std::string &name) {
  return buildPeer(name, true);
}

std::vector<std::vector<std::string>>
concord::bench::peerCommands(const std::string &name,
                             const std::string &program,
                             const std::vector<std::string> &address, int ranks,
                             const std::string &folder) {
  std::vector<std::string> command;
  if (name == "openmpi")
    // Ranks bind themselves, as Concord's do; transports between hosts are not
    // looked for.
    command = {"mpirun.openmpi",
               "--allow-run-as-root",
               "--oversubscribe",
               "--bind-to",
               "none",
               "--mca",
               "btl",
               "self,vader",
               "-n",
               std::to_string(ranks),
               program};
  else if (name == "mpich")
    command = {"mpirun.mpich", "-n", std::to_string(ranks), program};
  else if (name == "oneccl")
    // Its libraries find each other by path only.
    command = {"env",
               "LD_LIBRARY_PATH=" + oneCclRoot() + "/lib",
               "I_MPI_ROOT=" + oneCclRoot(),
               "CCL_LOG_LEVEL=error",
               oneCclRoot() + "/bin/mpiexec.hydra",
               "-n",
               std::to_string(ranks),
               program};
  if (!command.empty()) {
    command.insert(command.end(), address.begin(), address.end());
    if (name == "oneccl")
      command.insert(command.end(), {std::to_string(ranks), folder});
    return {command};
  }
  std::vector<std::vector<std::string>> commands;
  for (int r = 0; r < ranks; ++r) {
    command = {program};
    command.insert(command.end(), address.begin(), address.end());
    command.insert(command.end(),
                   {std::to_string(r), std::to_string(ranks), folder});
    commands.push_back(command);
  }
  return commands;
}
