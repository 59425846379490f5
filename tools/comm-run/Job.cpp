//===- Job.cpp - One run of a program by N processes ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The folder goes with the Job, however that ends; only SIGKILL of comm-run
// leaves it behind, and then the next comm-run removes it (the lock in it is
// free).
//
//===----------------------------------------------------------------------===//

#include "Job.h"

#include "Topology.h"
#include "common/Files.h"
#include "common/Sharding.h"
#include "concord/concord.h"
#include "concord/launch.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace fs = std::filesystem;
using nlohmann::json;

namespace concord::tools {

namespace {

constexpr const char *kPrefix = "comm-run.";

/// Take the lock of a job's folder; nothing when it is held or not there.
std::optional<FileLock> tryLock(const fs::path &folder) {
  int fd = ::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return std::nullopt;
  FileLock lock(fd);
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0)
    return std::nullopt;
  return lock;
}

/// Remove the folders of comm-runs that were killed. Only our own user's, and
/// only those whose lock nobody holds; one without a lock file is just being
/// made.
void sweep(const fs::path &parent) {
  std::error_code error;
  for (const fs::directory_entry &entry :
       fs::directory_iterator(parent, error)) {
    if (!entry.path().filename().string().starts_with(kPrefix))
      continue;
    struct stat info;
    if (::lstat(entry.path().c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        info.st_uid != ::geteuid())
      continue;
    if (std::optional<FileLock> lock = tryLock(entry.path())) {
      std::error_code ignored;
      fs::remove_all(entry.path(), ignored);
    }
  }
}

/// Reads what the ranks write to their standard output and error and hands it
/// on line by line.
class OutputPump {
public:
  explicit OutputPump(int64_t world)
      : ranks(static_cast<size_t>(world)), label(world > 1) {
    for (Rank &rank : ranks) {
      int ends[2];
      if (::pipe2(ends, O_CLOEXEC) != 0)
        throw Error(std::string("cannot make a pipe: ") + std::strerror(errno));
      rank.read = ends[0];
      rank.write = ends[1];
      ::fcntl(rank.read, F_SETFL, O_NONBLOCK);
      writeEnds.push_back(rank.write);
    }
    // Signals are for the thread that launches.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::thread([this] { pump(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~OutputPump() { stop(); }

  const int32_t *fds() const { return writeEnds.data(); }

  /// All ranks have ended: take what is left.
  void stop() {
    if (!thread.joinable())
      return;
    stopping = true;
    thread.join();
    for (Rank &rank : ranks) {
      drain(rank);
      if (!rank.pending.empty())
        emit(rank, std::exchange(rank.pending, {}));
      ::close(rank.read);
      ::close(rank.write);
    }
  }

  std::string lastWords(int rank) const {
    if (rank < 0 || static_cast<size_t>(rank) >= ranks.size())
      return "";
    std::string text;
    for (const std::string &line : ranks[static_cast<size_t>(rank)].last)
      text += "  " + line + "\n";
    return text;
  }

private:
  struct Rank {
    int read = -1, write = -1;
    std::string pending;
    std::vector<std::string> last;
  };

  void pump() {
    while (!stopping) {
      std::vector<pollfd> set;
      for (const Rank &rank : ranks)
        set.push_back({rank.read, POLLIN, 0});
      if (::poll(set.data(), set.size(), 50) <= 0)
        continue;
      for (Rank &rank : ranks)
        drain(rank);
    }
  }

  void drain(Rank &rank) {
    char buffer[4096];
    ssize_t got;
    while ((got = ::read(rank.read, buffer, sizeof(buffer))) > 0) {
      rank.pending.append(buffer, static_cast<size_t>(got));
      size_t end;
      while ((end = rank.pending.find('\n')) != std::string::npos) {
        emit(rank, rank.pending.substr(0, end));
        rank.pending.erase(0, end + 1);
      }
      // A line without end must not fill the memory.
      if (rank.pending.size() > 1 << 16)
        emit(rank, std::exchange(rank.pending, {}));
    }
  }

  void emit(Rank &rank, std::string line) {
    if (label)
      std::fprintf(stderr, "[rank %zu] %s\n",
                   static_cast<size_t>(&rank - ranks.data()), line.c_str());
    else
      std::fprintf(stderr, "%s\n", line.c_str());
    rank.last.push_back(std::move(line));
    if (rank.last.size() > 5)
      rank.last.erase(rank.last.begin());
  }

  std::vector<Rank> ranks;
  std::vector<int32_t> writeEnds;
  bool label;
  std::atomic<bool> stopping = false;
  std::thread thread;
};

} // namespace

Job::Job(const Options &options, fs::path program, const ProgramMeta &meta,
         int64_t member)
    : options(options), program(std::move(program)), meta(meta),
      member(member) {
  fs::path parent = tempParent();
  sweep(parent);
  dir = ScratchDir(makePrivateDir(parent, kPrefix));
  // Locked first and named then, so that no sweep finds it free.
  fs::path name = folder() / "lock", making = folder() / "lock.new";
  int fd = ::open(making.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ::flock(fd, LOCK_EX | LOCK_NB) != 0 ||
      ::rename(making.c_str(), name.c_str()) != 0)
    throw Error(folder().string() +
                ": cannot make a lock file: " + std::strerror(errno));
  alive = FileLock(fd);
}

Job::~Job() {
  if (options.keep) {
    // Without its lock file a sweep leaves it alone.
    std::error_code ignored;
    fs::remove(folder() / "lock", ignored);
    dir.release();
  }
}

fs::path Job::inputFile(size_t index, int64_t rank) const {
  return folder() /
         ("in" + std::to_string(index) + "." + std::to_string(rank) + ".raw");
}
fs::path Job::outputFile(size_t index, int64_t rank) const {
  return folder() /
         ("out" + std::to_string(index) + "." + std::to_string(rank) + ".raw");
}
fs::path Job::jobFile(int64_t rank) const {
  return folder() / ("job." + std::to_string(rank) + ".json");
}
fs::path Job::statsFile(int64_t rank) const {
  return folder() / ("stats." + std::to_string(rank) + ".json");
}
fs::path Job::traceFile(int64_t rank) const {
  return folder() / ("trace." + std::to_string(rank) + ".json");
}

void Job::writeInputs(const std::vector<InputSources> &sources,
                      const std::vector<Entry> &fills) {
  // One file for all ranks that read the same part; a member has its own.
  auto fileOf = [&](size_t i, const Entry &entry, int64_t rank) {
    return inputFile(i, member >= 0 || entry.kind == Entry::Kind::PerRank
                            ? rank
                            : representative(meta, entry, rank));
  };
  auto here = [&](int64_t rank) { return member < 0 || rank == member; };
  for (size_t i = 0; i < meta.inputs.size(); ++i) {
    checkInterrupted();
    const Entry &entry = fills[i];
    if (entry.kind == Entry::Kind::PerRank) {
      for (int64_t rank = 0; rank < meta.world; ++rank)
        if (entry.on(rank) && here(rank))
          writeFile(inputFile(i, rank),
                    {makeInput(entry, sources[i][static_cast<size_t>(rank)],
                               options.seed, rank)
                         .bytes});
      continue;
    }
    HostTensor global = makeInput(entry, sources[i].front(), options.seed, 0);
    for (int64_t rank = 0; rank < meta.world; ++rank)
      if (entry.on(rank) && here(rank) &&
          fileOf(i, entry, rank) == inputFile(i, rank))
        writeFile(inputFile(i, rank),
                  {sliceFor(meta, entry, rank, global.bytes)});
  }
  auto outputsOf = [&](int64_t rank) {
    json outputs = json::array();
    for (size_t i = 0; i < meta.outputs.size(); ++i)
      if (meta.outputs[i].on(rank))
        outputs.push_back({{"name", meta.outputs[i].name},
                           {"file", outputFile(i, rank).string()}});
    return outputs;
  };
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    if (!here(rank))
      continue;
    json job = {{"program", fs::absolute(program).string()},
                {"repeat", options.repeat},
                {"warmup", options.warmup},
                {"json", statsFile(rank).string()}};
    if (meta.gate == "hold")
      job["slots"] = options.slots;
    if (options.health)
      job["health"] = true;
    json &inputs = job["inputs"] = json::array();
    for (size_t i = 0; i < meta.inputs.size(); ++i) {
      if (!meta.inputs[i].on(rank))
        continue;
      json input = {{"name", meta.inputs[i].name},
                    {"file", fileOf(i, meta.inputs[i], rank).string()}};
      if (!meta.inputs[i].extents.empty())
        input["shape"] = meta.inputs[i].shape;
      inputs.push_back(std::move(input));
    }
    job["outputs"] = outputsOf(rank);
    if (member >= 0) {
      json &ranks = job["gather"]["ranks"] = json::array();
      for (int64_t other = 0; member == 0 && other < meta.world; ++other) {
        json files = {{"outputs", outputsOf(other)},
                      {"json", statsFile(other).string()}};
        if (!options.traceFile.empty())
          files["trace"] = traceFile(other).string();
        ranks.push_back(std::move(files));
      }
    }
    json &state = job["state"] = json::array();
    for (const auto &[input, output] : options.states) {
      auto known = [&](const std::vector<Entry> &entries,
                       const std::string &name) {
        for (const Entry &entry : entries)
          if (entry.name == name)
            return entry.on(rank);
        return false;
      };
      if (known(meta.inputs, input) && known(meta.outputs, output))
        state.push_back({{"input", input}, {"output", output}});
    }
    if (!options.traceFile.empty())
      job["trace"] = traceFile(rank).string();
    writeFile(jobFile(rank), job.dump(1));
  }
}

/// The rank joins the others by the environment of who started comm-run.
RunResult Job::runMember() {
  std::string runner = (executableDir() / "concord-rank").string();
  std::string job = jobFile(member).string();
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0)
    throw Error(std::string("cannot start a rank: ") + std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent)
      ::_exit(1);
    // Results alone go to standard output, and those are comm-run's.
    ::dup2(2, 1);
    ::execl(runner.c_str(), runner.c_str(), job.c_str(), nullptr);
    std::perror(runner.c_str());
    ::_exit(127);
  }
  auto began = std::chrono::steady_clock::now();
  auto passed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         began)
        .count();
  };
  RunResult result;
  int status = 0;
  bool stopped = false;
  double stoppedAt = 0;
  for (pid_t ended = 0; ended != child;
       ended = ::waitpid(child, &status, WNOHANG)) {
    if (ended < 0 && errno != EINTR)
      throw Error(std::string("waitpid: ") + std::strerror(errno));
    bool late = options.timeout > 0 && passed() > options.timeout;
    if ((interruptedBy() || late) && !stopped) {
      if (late)
        result.exitCode = ExitTimeout;
      ::kill(child, SIGTERM);
      stopped = true;
      stoppedAt = passed();
    }
    if (stopped && passed() > stoppedAt + 5)
      ::kill(child, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  checkInterrupted();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
    return RunResult();
  std::string who = "rank " + std::to_string(member);
  result.failedRank = int(member);
  if (result.exitCode == ExitTimeout) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g", options.timeout);
    result.message = who + " was stopped after " + seconds + " s (--timeout)";
    return result;
  }
  result.exitCode = ExitRank;
  if (WIFSIGNALED(status))
    result.message = who + " was killed by signal " +
                     std::to_string(WTERMSIG(status)) + " (" +
                     ::strsignal(WTERMSIG(status)) + ")";
  else if (WEXITSTATUS(status) == CONCORD_EXIT_CONSEQUENCE)
    result.message = who + " ended because another one had failed";
  else
    result.message =
        who + " failed with exit code " + std::to_string(WEXITSTATUS(status));
  return result;
}

RunResult Job::run() {
  checkInterrupted();
  if (member >= 0)
    return runMember();
  fs::path runner = executableDir() / "concord-rank";
  std::string runnerText = runner.string();
  std::vector<std::string> jobs;
  for (int64_t rank = 0; rank < meta.world; ++rank)
    jobs.push_back(jobFile(rank).string());
  std::vector<std::array<const char *, 3>> arguments;
  std::vector<const char *const *> argv;
  for (const std::string &job : jobs)
    arguments.push_back({runnerText.c_str(), job.c_str(), nullptr});
  for (const auto &argument : arguments)
    argv.push_back(argument.data());

  OutputPump pump(meta.world);
  concord_launch_config config = {};
  config.struct_size = sizeof(config);
  config.world = static_cast<int32_t>(meta.world);
  config.argv = argv.data();
  // One rank per core, neighbours on cores that share most; more ranks than
  // units are left to the scheduler.
  std::vector<int32_t> cpus;
  if (TopologyMap map = placeRanks({}, meta.world, false); !map.oversubscribed)
    for (const Placement &place : map.ranks)
      cpus.push_back(place.pu);
  if (!cpus.empty())
    config.cpus = cpus.data();
  config.timeout_seconds = options.timeout;
  config.stdout_fds = pump.fds();
  config.stderr_fds = pump.fds();
  concord_launch_result ended = {};
  ended.struct_size = sizeof(ended);
  // A signal that came just before the launcher began to listen is sent again.
  config.started = [](void *, const int64_t *, int32_t) {
    if (int signal = interruptedBy())
      ::kill(::getpid(), signal);
  };
  int32_t status = concord_launch_job(&config, &ended);
  pump.stop();
  checkInterrupted();

  RunResult result;
  if (status == CONCORD_OK)
    return result;
  if (ended.interrupted)
    throw Interrupted(ended.interrupted);
  result.exitCode = ended.timed_out ? ExitTimeout : ExitRank;
  result.failedRank = ended.failed_rank;
  result.message = ended.message[0] ? std::string(ended.message)
                                    : "the ranks could not be started (error " +
                                          std::to_string(status) + ")";
  result.lastWords = pump.lastWords(ended.failed_rank);
  return result;
}

std::vector<HostTensor> Job::readOutput(size_t index) const {
  const Entry &entry = meta.outputs[index];
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<std::span<const std::byte>> parts;
  uint64_t size = numBytes(entry.dtype, entry.localShape).value_or(0);
  for (int64_t rank = 0; rank < meta.world; ++rank) {
    if (!entry.on(rank)) {
      parts.emplace_back();
      continue;
    }
    files.push_back(std::make_unique<MappedFile>(outputFile(index, rank)));
    parts.push_back(files.back()->bytes());
    if (parts.back().size() != size)
      throw RankError("output '" + entry.name + "': rank " +
                      std::to_string(rank) + " wrote " +
                      std::to_string(parts.back().size()) +
                      " bytes instead of " + std::to_string(size));
  }
  std::vector<HostTensor> tensors;
  if (entry.kind == Entry::Kind::PerRank) {
    for (std::span<const std::byte> part : parts)
      tensors.push_back(
          {entry.dtype, entry.localShape, {part.begin(), part.end()}});
    return tensors;
  }
  tensors.push_back(gather(meta, entry, parts));
  return tensors;
}

} // namespace concord::tools
