//===- Driver.cpp - Teams that take turns ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Processes and sockets of the teams.
//
//===----------------------------------------------------------------------===//

#include "Driver.h"
#include "Concord.h"
#include "Limits.h"
#include "Peers.h"
#include "concord/launch.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>

using namespace concord::bench;

/// All ranks' buffers together are several times any last-level cache of one
/// socket, whatever their number.
static constexpr uint64_t kRotation = uint64_t(144) << 20;
static constexpr int kStartSeconds = 60;
/// Peers may be very slow when ranks outnumber cores.
static constexpr int kAnswerSeconds = 600;

uint64_t concord::bench::bufferBytesFor(const Options &options) {
  uint64_t bytes = options.to + 4096 * uint64_t(options.ranks) + (1 << 16);
  if (options.flood)
    bytes = std::max(bytes, (uint64_t(64) << 20) + (1 << 17));
  if (options.rotate)
    bytes = std::max(bytes, kRotation / uint64_t(options.ranks));
  return (bytes + 4095) / 4096 * 4096;
}

Driver::Driver(const Options &options) : options(options) {
  bufferBytes = bufferBytesFor(options);
}

Driver::~Driver() {
  for (Team &team : teams)
    for (int socket : team.sockets)
      if (socket >= 0)
        ::close(socket);
  if (listener >= 0)
    ::close(listener);
  // Ranks end when their socket does; what does not is brought down.
  for (Team &team : teams)
    for (pid_t process : team.processes) {
      for (int i = 0; i < 300; ++i) {
        if (::waitpid(process, nullptr, WNOHANG) != 0) {
          process = -1;
          break;
        }
        ::usleep(10'000);
      }
      if (process > 0) {
        ::kill(process, SIGKILL);
        ::waitpid(process, nullptr, 0);
      }
    }
  if (job.joinable())
    job.join();
  if (flags >= 0)
    ::close(flags);
  if (!folder.empty()) {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
}

void Driver::listen() {
  uint64_t random[2];
  if (::getrandom(random, sizeof random, 0) != sizeof random)
    throw Failure("no random numbers");
  token = random[1];
  char name[40];
  std::snprintf(name, sizeof name, "concord-bench-%016llx",
                (unsigned long long)random[0]);
  socketName = name;
  listener = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, socketName.data(), socketName.size());
  if (listener < 0 ||
      ::bind(listener, reinterpret_cast<sockaddr *>(&address),
             socklen_t(offsetof(sockaddr_un, sun_path) + 1 +
                       socketName.size())) != 0 ||
      ::listen(listener, 256) != 0)
    throw Failure(std::string("cannot listen for the ranks: ") +
                  std::strerror(errno));
}

std::vector<std::string> Driver::addressOf(size_t team) const {
  char hex[24];
  std::snprintf(hex, sizeof hex, "%llx", (unsigned long long)token);
  return {socketName,
          hex,
          std::to_string(team),
          std::to_string(bufferBytes),
          options.rotate ? "1" : "0",
          options.split.empty() ? "-" : options.split};
}

void Driver::startConcord() {
  teams.push_back({"concord", "", {}, {}});
  flags = ::memfd_create("comm-bench flags", 0); // the ranks inherit it
  static_assert(kFlagBytes + kSharedBytes <= kLimitsAt);
  if (flags < 0 ||
      ::ftruncate(flags, off_t(kLimitsAt +
                               limitBytes(options.ranks, bufferBytes))) != 0)
    throw Failure(std::string("no memory for flags: ") + std::strerror(errno));
  char self[4096];
  ssize_t n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  if (n <= 0)
    throw Failure("cannot find itself");
  self[n] = 0;
  std::vector<std::string> arguments = {self, "--rank"};
  for (const std::string &argument : addressOf(0))
    arguments.push_back(argument);
  arguments.push_back(std::to_string(flags));
  arguments.push_back(std::to_string(options.memory));
  job = std::thread([this, arguments] {
    std::vector<const char *> pointers;
    for (const std::string &argument : arguments)
      pointers.push_back(argument.c_str());
    pointers.push_back(nullptr);
    concord_launch_config config{};
    config.struct_size = sizeof config;
    config.world = options.ranks;
    config.argv_all = pointers.data();
    config.bind_cores = 1;
    concord_launch_result result{};
    result.struct_size = sizeof result;
    jobStatus = concord_launch_job(&config, &result);
    jobMessage = result.message;
    jobEnded = true;
  });
}

void Driver::spawn(Team &team, const std::vector<std::string> &arguments) {
  std::vector<char *> pointers;
  for (const std::string &argument : arguments)
    pointers.push_back(const_cast<char *>(argument.c_str()));
  pointers.push_back(nullptr);
  pid_t parent = ::getpid();
  pid_t child = ::fork();
  if (child < 0)
    throw Failure(std::string("cannot start a process: ") +
                  std::strerror(errno));
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != parent)
      ::_exit(1);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    // What a launcher prints belongs to the errors.
    ::dup2(2, 1);
    ::execvp(pointers[0], pointers.data());
    std::perror(pointers[0]);
    ::_exit(127);
  }
  team.processes.push_back(child);
}

void Driver::startPeer(const std::string &name) {
  size_t index = teams.size();
  teams.push_back({name, "", {}, {}});
  std::string program = peerProgram(name);
  if (folder.empty()) {
    std::string pattern =
        (std::filesystem::temp_directory_path() / "comm-bench-XXXXXX").string();
    if (!::mkdtemp(pattern.data()))
      throw Failure("no temporary folder: " +
                    std::string(std::strerror(errno)));
    folder = pattern;
  }
  std::vector<std::string> address = addressOf(index);
  for (const auto &command :
       peerCommands(name, program, address, options.ranks, folder))
    spawn(teams[index], command);
}

void Driver::checkAlive() {
  if (jobEnded)
    throw Failure("Concord's ranks have ended: " + jobMessage);
  for (Team &team : teams)
    for (pid_t &process : team.processes) {
      int status = 0;
      if (process > 0 && ::waitpid(process, &status, WNOHANG) == process) {
        process = -1;
        throw Failure("peer " + team.name + " has ended early (status " +
                      std::to_string(WIFEXITED(status)
                                         ? WEXITSTATUS(status)
                                         : 128 + WTERMSIG(status)) +
                      "); its messages are above");
      }
    }
}

static bool readAll(int socket, void *data, size_t bytes, double seconds) {
  double deadline = microseconds() + seconds * 1e6;
  for (size_t at = 0; at < bytes;) {
    pollfd entry{socket, POLLIN, 0};
    int wait = int((deadline - microseconds()) / 1e3);
    if (wait <= 0 || ::poll(&entry, 1, wait) <= 0)
      return false;
    ssize_t n = ::read(socket, static_cast<char *>(data) + at, bytes - at);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    at += size_t(n);
  }
  return true;
}

void Driver::acceptAll() {
  size_t missing = 0;
  for (Team &team : teams) {
    team.sockets.assign(size_t(options.ranks), -1);
    missing += size_t(options.ranks);
  }
  double deadline = microseconds() + kStartSeconds * 1e6;
  while (missing) {
    checkAlive();
    if (microseconds() > deadline) {
      std::string who;
      for (Team &team : teams)
        for (size_t r = 0; r < team.sockets.size(); ++r)
          if (team.sockets[r] < 0)
            who += " " + team.name + ":" + std::to_string(r);
      throw Failure("ranks that have not started within " +
                    std::to_string(kStartSeconds) + " s:" + who);
    }
    pollfd entry{listener, POLLIN, 0};
    if (::poll(&entry, 1, 100) <= 0)
      continue;
    int socket = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0)
      continue;
    Hello hello;
    if (!readAll(socket, &hello, sizeof hello, 5) || hello.magic != kMagic ||
        hello.token != token || hello.team >= teams.size() ||
        hello.rank >= uint32_t(options.ranks) ||
        teams[hello.team].sockets[hello.rank] >= 0) {
      ::close(socket); // somebody else
      continue;
    }
    hello.version[sizeof hello.version - 1] = 0;
    teams[hello.team].sockets[hello.rank] = socket;
    teams[hello.team].version = hello.version;
    --missing;
  }
}

void Driver::start() {
  // Whatever a peer needs is found out before anything runs.
  for (const std::string &peer : options.peers)
    peerProgram(peer);
  listen();
  startConcord();
  for (const std::string &peer : options.peers)
    startPeer(peer);
  acceptAll();
}

Answer Driver::command(size_t index, const Command &command) {
  Team &team = teams[index];
  for (int socket : team.sockets)
    if (::send(socket, &command, sizeof command, MSG_NOSIGNAL) !=
        ssize_t(sizeof command)) {
      checkAlive();
      throw Failure("a rank of " + team.name + " is gone");
    }
  double patience = options.timeout ? options.timeout : kAnswerSeconds;
  Answer answer;
  answer.numbers.resize(team.sockets.size());
  for (size_t r = 0; r < team.sockets.size(); ++r) {
    Reply reply;
    bool good = readAll(team.sockets[r], &reply, sizeof reply, patience) &&
                reply.numbers <= 1 << 24;
    if (good) {
      answer.numbers[r].resize(reply.numbers);
      good = readAll(team.sockets[r], answer.numbers[r].data(),
                     reply.numbers * sizeof(double), patience);
    }
    if (!good) {
      ::usleep(200'000); // the launcher knows why, in a moment
      checkAlive();
      throw Failure("rank " + std::to_string(r) + " of " + team.name +
                    " does not answer");
    }
    if (reply.status < 0)
      answer.supported = false;
    else
      answer.wrong += reply.status;
  }
  return answer;
}

Answer Teams::special(uint32_t what, const Call &call,
                      std::initializer_list<uint64_t> arguments) {
  Command request;
  request.verb = kSpecial;
  request.inPlace = what;
  request.call = call;
  std::copy(arguments.begin(), arguments.end(), request.arguments);
  return command(0, request);
}

void Driver::finish() {
  Command quit;
  quit.verb = kQuit;
  for (Team &team : teams)
    for (int socket : team.sockets)
      ::send(socket, &quit, sizeof quit, MSG_NOSIGNAL);
  if (job.joinable())
    job.join();
  if (jobStatus != CONCORD_OK)
    throw Failure("Concord's ranks: " + jobMessage);
}
