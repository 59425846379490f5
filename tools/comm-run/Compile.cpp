//===- Compile.cpp - From a model to a cached artefact --------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A cache entry is the folder CACHE/KEY. It is made under another name and
// renamed into place, so that it is there whole or not at all; CACHE/KEY.lock
// is held exclusively while it is made and shared while it is used.
//
//===----------------------------------------------------------------------===//

#include "Compile.h"

#include "Shapes.h"
#include "common/CpuClass.h"
#include "common/Files.h"
#include "concord/cost/Machine.h"
#include "concord/plan.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <set>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

extern char **environ;

namespace fs = std::filesystem;

namespace concord::tools {

namespace {

volatile std::sig_atomic_t pendingSignal = 0;

void noteSignal(int signal) { pendingSignal = signal; }

const char *signalName(int signal) {
  switch (signal) {
  case SIGINT:
    return "SIGINT";
  case SIGTERM:
    return "SIGTERM";
  case SIGHUP:
    return "SIGHUP";
  default:
    return "a signal";
  }
}

} // namespace

Interrupted::Interrupted(int signal)
    : Error(std::string("stopped by ") + signalName(signal)), signal(signal) {}

void catchSignals() {
  struct sigaction action = {};
  action.sa_handler = noteSignal; // no SA_RESTART: waiting calls return
  for (int signal : {SIGINT, SIGTERM, SIGHUP})
    ::sigaction(signal, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

int interruptedBy() { return pendingSignal; }

void checkInterrupted() {
  if (pendingSignal)
    throw Interrupted(pendingSignal);
}

FileLock::~FileLock() {
  if (fd >= 0)
    ::close(fd);
}

ScratchDir::~ScratchDir() {
  std::error_code ignored;
  if (!folder.empty())
    fs::remove_all(folder, ignored);
}

namespace {

/// Open and lock; nothing when `wait` is false and somebody else holds it.
std::optional<FileLock> lockFile(const fs::path &path, int how, bool wait) {
  int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0)
    throw Error(path.string() + ": cannot open: " + std::strerror(errno));
  FileLock lock(fd);
  // By trying again: a signal between a test and a blocking call would be lost.
  while (::flock(fd, how | LOCK_NB) != 0) {
    checkInterrupted();
    if (errno != EWOULDBLOCK && errno != EINTR)
      throw Error(path.string() + ": cannot lock: " + std::strerror(errno));
    if (!wait)
      return std::nullopt;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return lock;
}

std::string readStart(const fs::path &path, size_t most) {
  MappedFile file(path);
  std::span<const std::byte> bytes = file.bytes();
  size_t size = std::min(most, bytes.size());
  return {reinterpret_cast<const char *>(bytes.data()), size};
}

std::string substituteRank(const std::string &pattern, int64_t rank) {
  std::string name = pattern;
  size_t at = name.find("{rank}");
  return name.replace(at, 6, std::to_string(rank));
}

/// Size and time of change, as text; "absent" when the file is not there.
std::string identityOf(const fs::path &path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return "absent";
  return std::to_string(info.st_size) + "," +
         std::to_string(info.st_mtim.tv_sec) + "." +
         std::to_string(info.st_mtim.tv_nsec);
}

class KeyBuilder {
public:
  /// Length-prefixed, so that no two lists of parts give the same text.
  void add(std::string_view label, std::string_view value) {
    text += std::to_string(label.size()) + ":";
    text += label;
    text += std::to_string(value.size()) + ":";
    text += value;
  }
  void addContent(const fs::path &path) {
    MappedFile file(path);
    add("content", plan::toHex(plan::sha256(file.bytes())));
    if (path.extension() == ".onnx")
      for (const std::string &name : externalDataNames(file.bytes())) {
        add("external", name);
        add("identity", identityOf(path.parent_path() / name));
      }
  }
  std::string finish() const {
    return plan::toHex(
        plan::sha256(std::as_bytes(std::span(text.data(), text.size()))));
  }

private:
  std::string text;
};

/// Drop what comm-runs that were killed left half made, and the entries that
/// were used longest ago until `limit` bytes are left. What is in use is passed
/// over. Failing here is no failure of the run.
void pruneCache(const fs::path &cache, uint64_t limit) {
  struct Item {
    fs::file_time_type used;
    fs::path path;
    uint64_t bytes = 0;
  };
  std::vector<Item> items;
  uint64_t total = 0;
  std::error_code error;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(cache, error)) {
    std::error_code ignored;
    if (!entry.is_directory(ignored))
      continue;
    Item item{entry.last_write_time(ignored), entry.path()};
    for (const fs::directory_entry &file :
         fs::directory_iterator(entry.path(), ignored)) {
      std::error_code sizeError;
      uintmax_t bytes = file.file_size(sizeError);
      if (!sizeError)
        item.bytes += bytes;
    }
    total += item.bytes;
    items.push_back(std::move(item));
  }
  std::sort(items.begin(), items.end(),
            [](const Item &a, const Item &b) { return a.used < b.used; });
  for (const Item &item : items) {
    // A folder in the making is called KEY.XXXXXX, and its maker has KEY's
    // lock.
    std::string key = item.path.filename().string();
    size_t dot = key.find('.');
    if (dot == std::string::npos && total <= limit)
      continue;
    key = key.substr(0, dot);
    std::optional<FileLock> lock =
        lockFile(cache / (key + ".lock"), LOCK_EX, false);
    if (!lock)
      continue;
    fs::remove_all(item.path, error);
    total -= item.bytes;
  }
}

uint64_t cacheLimit() {
  constexpr uint64_t standard = uint64_t(16) << 30;
  const char *text = std::getenv("CONCORD_CACHE_LIMIT");
  if (!text || !*text)
    return standard;
  char *end = nullptr;
  errno = 0;
  unsigned long long value = std::strtoull(text, &end, 10);
  if (errno || *end || *text == '-')
    throw Error(std::string("CONCORD_CACHE_LIMIT: '") + text +
                "' is not a number of bytes");
  return value;
}

void runCompiler(const fs::path &compiler,
                 const std::vector<std::string> &arguments, bool verbose) {
  std::vector<char *> argv;
  argv.push_back(const_cast<char *>(compiler.c_str()));
  std::string line = compiler.string();
  for (const std::string &argument : arguments) {
    argv.push_back(const_cast<char *>(argument.c_str()));
    line += " " + argument;
  }
  argv.push_back(nullptr);
  if (verbose)
    std::fprintf(stderr, "comm-run: %s\n", line.c_str());
  pid_t pid = 0;
  // A group of its own, so that what it starts (a linker) goes with it.
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  int error = ::posix_spawn(&pid, compiler.c_str(), nullptr, &attributes,
                            argv.data(), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error)
    throw CompileError(compiler.string() +
                       ": cannot be started: " + std::strerror(error) +
                       "; the room 'passes' (MLIR) builds it");
  int status = 0;
  bool stopped = false;
  for (pid_t ended = 0; ended != pid;
       ended = ::waitpid(pid, &status, WNOHANG)) {
    if (ended < 0 && errno != EINTR)
      throw Error(std::string("waitpid: ") + std::strerror(errno));
    if (pendingSignal && !stopped) {
      ::kill(-pid, SIGTERM);
      stopped = true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  checkInterrupted();
  if (WIFSIGNALED(status))
    throw CompileError("comm-opt was killed by signal " +
                       std::to_string(WTERMSIG(status)) + " (" +
                       ::strsignal(WTERMSIG(status)) + ")");
  if (WEXITSTATUS(status) != 0)
    throw CompileError("comm-opt exited with " +
                       std::to_string(WEXITSTATUS(status)));
}

} // namespace

Source classify(const std::string &program) {
  if (program.find("{rank}") != std::string::npos)
    return {Source::Kind::PerRankModels};
  fs::path path = program;
  std::string extension = path.extension().string();
  // ELF files are taken for what they are, whatever their name.
  std::string start = readStart(path, 4);
  if (extension == ".so" || start == "\x7f"
                                     "ELF")
    return {Source::Kind::Artefact};
  if (extension != ".mlir")
    return {Source::Kind::Model};
  // The module's attributes come first; what a string may hold later in the
  // file must not count.
  std::string text = readStart(path, 16 << 20);
  size_t at = text.find("comm.world");
  if (at == std::string::npos)
    return {Source::Kind::Model};
  at = text.find_first_not_of(" =", at + std::strlen("comm.world"));
  int64_t world = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' &&
         world < 1 << 20;
       ++at)
    world = world * 10 + (text[at] - '0');
  if (world <= 1)
    return {Source::Kind::Model};
  return {Source::Kind::Partitioned, world};
}

std::vector<std::string> externalDataNames(std::span<const std::byte> onnx) {
  // StringStringEntryProto {key: "location", value: NAME}: field 1, length 8,
  // the word, field 2, length, the name.
  static constexpr std::string_view pattern("\x0a\x08location\x12", 11);
  std::string_view text(reinterpret_cast<const char *>(onnx.data()),
                        onnx.size());
  std::set<std::string> names;
  for (size_t at = text.find(pattern);
       at != std::string_view::npos && names.size() < 4096;
       at = text.find(pattern, at + 1)) {
    size_t from = at + pattern.size(), length = 0;
    for (int shift = 0; from < text.size() && shift < 21; shift += 7) {
      unsigned char byte = static_cast<unsigned char>(text[from++]);
      length |= size_t(byte & 0x7f) << shift;
      if (!(byte & 0x80))
        break;
    }
    if (length > 0 && length <= 4096 && length <= text.size() - from)
      names.emplace(text.substr(from, length));
  }
  return {names.begin(), names.end()};
}

std::string cacheKey(const std::string &program, int64_t ranks,
                     const std::vector<std::string> &arguments,
                     const fs::path &compiler) {
  KeyBuilder key;
  key.add("format", "1");
  key.add("compiler", identityOf(compiler));
  // The kernels decide how weights are packed.
  key.add("runtime", identityOf(compiler.parent_path().parent_path() / "lib" /
                                "libconcord.so"));
  key.add("cpu", cpuClass());
  // Where no machine is named, the compiler's decisions follow this host's
  // calibration; a new one must not meet programs of the old one.
  if (fs::path calibration = cost::defaultCalibrationPath();
      !calibration.empty() && fs::is_regular_file(calibration))
    key.addContent(calibration);
  for (const std::string &argument : arguments) {
    key.add("argument", argument);
    // `--const x=FILE`, `--option=FILE`, `FILE`: what the file holds matters
    // too.
    for (size_t from : {argument.find('='), argument.rfind('=')}) {
      fs::path file = argument.substr(from == std::string::npos ? 0 : from + 1);
      std::error_code error;
      if (fs::is_regular_file(file, error))
        key.addContent(file);
    }
  }
  // The name is in the artefact, and in messages.
  key.add("name", fs::path(program).filename().string());
  if (program.find("{rank}") != std::string::npos) {
    for (int64_t rank = 0; rank < ranks; ++rank)
      key.addContent(substituteRank(program, rank));
    return key.finish();
  }
  key.addContent(program);
  if (fs::path weights = fs::path(program).replace_extension(".weights");
      fs::path(program).extension() == ".mlir")
    key.add("weights", identityOf(weights));
  return key.finish();
}

fs::path cacheDir() {
  fs::path dir;
  const char *value = std::getenv("CONCORD_CACHE_DIR");
  if (value && *value) {
    dir = value;
  } else if (value = std::getenv("XDG_CACHE_HOME"); value && *value) {
    dir = fs::path(value) / "concord";
  } else if (value = std::getenv("HOME"); value && *value) {
    dir = fs::path(value) / ".cache" / "concord";
  } else {
    throw Error("no folder for compiled programs, as HOME is not set: set "
                "CONCORD_CACHE_DIR, or give --no-cache");
  }
  std::error_code error;
  fs::create_directories(dir, error);
  if (error)
    throw Error(dir.string() + ": cannot be made: " + error.message() +
                "; CONCORD_CACHE_DIR names another folder");
  return dir;
}

std::vector<std::string> compileArguments(const Options &options,
                                          const Source &source) {
  std::vector<std::string> arguments = options.compile;
  if (source.kind == Source::Kind::PerRankModels &&
      compileOption(options, "--world").empty())
    arguments.push_back("--world=" + std::to_string(options.ranks));
  if (source.kind == Source::Kind::Model && options.ranks > 1 &&
      meshSize(options) == 0)
    arguments.push_back("--tp=" + std::to_string(options.ranks));
  auto pipeline = std::find_if(arguments.begin(), arguments.end(),
                               [](const auto &argument) {
                                 return argument.starts_with("--comm-pipeline");
                               });
  if (pipeline == arguments.end())
    pipeline = arguments.insert(pipeline, "--comm-pipeline");
  if (options.health)
    *pipeline += pipeline->find('=') == std::string::npos ? "=health=true"
                                                          : " health=true";
  arguments.push_back("--emit=so");
  return arguments;
}

Artefact obtainArtefact(const Options &options) {
  Artefact artefact;
  Source source = classify(options.program);
  if (source.kind == Source::Kind::Artefact) {
    (void)runDims(options); // refuses all other options
    artefact.path = options.program;
    return artefact;
  }
  int64_t mesh = meshSize(options);
  auto wrongRanks = [&](const std::string &what, int64_t has) {
    throw Error(what + " " + std::to_string(has) + " rank" +
                (has == 1 ? "" : "s") + ", but -n asks for " +
                std::to_string(options.ranks) + "; give -n " +
                std::to_string(has) + " or leave -n out");
  };
  if (options.ranks && mesh && mesh != options.ranks)
    wrongRanks("the mesh on the command line has", mesh);
  if (source.kind == Source::Kind::Partitioned && options.ranks &&
      source.world != options.ranks)
    wrongRanks(options.program + " was partitioned for", source.world);
  if (source.kind == Source::Kind::PerRankModels && !options.ranks && !mesh)
    throw Error(options.program + ": a model per rank needs -n N");

  fs::path compiler = executableDir() / "comm-opt";
  std::vector<std::string> arguments = compileArguments(options, source);
  std::string key =
      cacheKey(options.program, options.ranks ? options.ranks : mesh, arguments,
               compiler);
  fs::path cache;
  try {
    cache = cacheDir();
  } catch (const Error &) {
    // What is not kept needs no place that lasts.
    if (!options.noCache)
      throw;
    cache = fs::temp_directory_path();
  }
  fs::path entry = cache / key;
  std::string stem = fs::path(options.program).stem().string();
  if (size_t at = stem.find("{rank}"); at != std::string::npos)
    stem.replace(at, 6, "all");
  std::string file = fileSafe(stem) + ".so";
  artefact.path = entry / file;
  artefact.compiled = true;

  // What these print is the point of giving them.
  bool prints = std::any_of(options.compile.begin(), options.compile.end(),
                            [](const auto &argument) {
                              return argument.starts_with("--explain") ||
                                     argument.starts_with("--report") ||
                                     argument.starts_with("--comm-summary");
                            });
  std::error_code error;
  fs::path lockPath = cache / (key + ".lock");
  auto lock = [&](int how) {
    return std::move(*lockFile(lockPath, how, true));
  };
  auto found = [&] {
    if ((prints && !options.quiet) || !fs::exists(artefact.path, error))
      return false;
    artefact.cached = true;
    fs::last_write_time(entry, fs::file_time_type::clock::now(), error);
    if (!options.quiet)
      std::fprintf(stderr, "comm-run: compiling %s (cached)\n",
                   options.program.c_str());
    return true;
  };
  auto compileInto = [&](const ScratchDir &made) {
    if (!fs::exists(compiler, error))
      throw CompileError(compiler.string() +
                         ": not there; comm-opt compiles models, and the room "
                         "'passes' (MLIR) builds it");
    std::fprintf(stderr, "comm-run: compiling %s\n", options.program.c_str());
    auto begin = std::chrono::steady_clock::now();
    std::vector<std::string> all = {options.program};
    all.insert(all.end(), arguments.begin(), arguments.end());
    all.push_back("-o");
    all.push_back((made.path() / file).string());
    runCompiler(compiler, all, options.verbose);
    if (!fs::exists(made.path() / file, error))
      throw CompileError("comm-opt ended well, but made no " + file);
    artefact.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
            .count();
    std::fprintf(stderr, "comm-run: compiled in %.1f s\n", artefact.seconds);
  };

  if (options.noCache) {
    artefact.own = ScratchDir(makePrivateDir(cache, key + "."));
    compileInto(artefact.own);
    artefact.path = artefact.own.path() / file;
    return artefact;
  }
  artefact.inUse = lock(LOCK_SH);
  if (found())
    return artefact;
  if (prints && options.shared && !options.quiet) {
    artefact.own = ScratchDir(makePrivateDir(cache, key + "."));
    compileInto(artefact.own);
    artefact.path = artefact.own.path() / file;
    return artefact;
  }
  artefact.inUse = FileLock();
  bool fresh = false;
  {
    // The ranks of a job that another launcher has started each come here, and
    // who has the program keeps it until the job ends, which waits for all: so
    // nobody waits to make it without looking whether it is made.
    std::optional<FileLock> making;
    while (!(making = lockFile(lockPath, LOCK_EX, false))) {
      if (std::optional<FileLock> use = lockFile(lockPath, LOCK_SH, false)) {
        artefact.inUse = std::move(*use);
        if (found())
          return artefact;
        artefact.inUse = FileLock();
      }
      checkInterrupted();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    // Somebody else may have been quicker.
    if (!found()) {
      ScratchDir made(makePrivateDir(cache, key + "."));
      compileInto(made);
      fs::remove_all(entry, error);
      fs::rename(made.path(), entry, error);
      if (error)
        throw Error(entry.string() +
                    ": cannot be put in place: " + error.message());
      made.release();
      fresh = true;
    }
  }
  artefact.inUse = lock(LOCK_SH);
  // Between the two locks another comm-run may have made room.
  if (!fs::exists(artefact.path, error))
    throw Error(artefact.path.string() +
                ": was dropped from the cache; raise CONCORD_CACHE_LIMIT");
  if (fresh)
    pruneCache(cache, cacheLimit());
  return artefact;
}

} // namespace concord::tools
