//===- Live.cpp - Looking at a running job --------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The ranks' flags say all: the last operation that each member has published
// on each communicator, and its fingerprint. Two looks, a moment apart, tell
// what moves from what stands.
//
//===----------------------------------------------------------------------===//

#include "Live.h"
#include "Report.h"
#include "concord/dtype.h"
#include "diagnosis/Error.h"
#include "heap/Segment.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace concord::rt;
using nlohmann::json;

namespace concord::doctor {

namespace {

struct MemberLook {
  int rank = 0;
  uint64_t sequence = 0, fingerprint = 0;
};

struct CommLook {
  std::string name;
  std::vector<MemberLook> members;
  uint64_t broken = 0;
  bool revoked = false;
  uint64_t messages = 0; ///< posted and not taken
};

struct Look {
  std::map<uint64_t, CommLook> comms; ///< by key
};

const char *kindText(unsigned kind) {
  switch (kind) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_KINDS(X)
#undef X
  default:
    return "?";
  }
}

std::string operationText(uint64_t print) {
  std::string text = kindText(print & 15);
  DType type = DType(print >> 4 & 15);
  text += " count " + std::to_string(print >> 18);
  if (dtypeSize(type))
    text += " " + std::string(dtypeName(type));
  if (int root = int(print >> 11 & 127) - 1; root >= 0)
    text += " root " + std::to_string(root);
  return text;
}

Look lookAt(const Segment &segment) {
  Look look;
  for (unsigned i = 0; i < kMaxComms; ++i) {
    const CommEntry entry = segment.comms()[i];
    // Any of it may be changing; what does not fit is left out.
    if (entry.key == 0 || entry.size < 1 ||
        entry.size > uint32_t(segment.world()) ||
        entry.bytes != CommBlock::bytes(int(entry.size)) ||
        !entry.holds(entry.bytes))
      continue;
    CommBlock block(segment.commArea() + entry.offset, int(entry.size));
    CommLook comm;
    comm.name.assign(block.header->name,
                     ::strnlen(block.header->name, sizeof block.header->name));
    comm.broken = block.header->broken.load();
    comm.revoked = block.header->revoked.load() != 0;
    for (uint32_t m = 0; m < entry.size; ++m) {
      MemberLook member;
      member.rank = block.header->ranks[m];
      for (const Slot &slot : block.members[m].slots)
        if (uint64_t sequence = slot.sequence.load(std::memory_order_acquire);
            sequence > member.sequence) {
          member.sequence = sequence;
          member.fingerprint = slot.fingerprint;
        }
      comm.members.push_back(member);
      for (uint32_t to = 0; to < entry.size; ++to) {
        const Mailbox &box = block.mailbox(int(m), int(to));
        uint64_t taken = box.taken.load(), posted = box.posted.load();
        comm.messages += posted > taken ? posted - taken : 0;
      }
    }
    look.comms[entry.key] = std::move(comm);
  }
  return look;
}

/// The process's own state letter, 0 when there is none.
char processState(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  size_t at = line.rfind(')');
  return at != std::string::npos && at + 2 < line.size() ? line[at + 2] : 0;
}

/// Descriptors of the memory of each job that a process is in, the oldest job
/// first: several where a communicator has grown.
std::vector<int> findMemory(int64_t pid) {
  std::map<ino_t, int> found;
  std::error_code error;
  std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  for (const auto &entry : std::filesystem::directory_iterator(folder, error)) {
    auto target = std::filesystem::read_symlink(entry.path(), error);
    if (error || target.string().rfind("/memfd:concord-job", 0) != 0)
      continue;
    int fd = ::open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
    struct stat info{};
    if (fd >= 0 &&
        (::fstat(fd, &info) != 0 || !found.emplace(info.st_ino, fd).second))
      ::close(fd);
  }
  std::vector<int> list;
  for (const auto &[number, fd] : found)
    list.push_back(fd);
  return list;
}

/// What one job does, in words and as JSON. True when something is wrong.
bool describe(const Segment &segment, std::string &text, json &report) {
  bool wrong = false;
  Look before = lookAt(segment);
  timespec moment{0, 200'000'000};
  ::nanosleep(&moment, nullptr);
  Look now = lookAt(segment);

  json ranks = json::array(), comms = json::array();
  text += "job of " + std::to_string(segment.world()) + " ranks\n";
  std::vector<std::string> states;
  for (int r = 0; r < segment.world(); ++r) {
    const RankSlot &slot = segment.slot(r);
    int64_t own = slot.pid.load();
    uint32_t state = slot.state.load();
    char process = own ? processState(own) : 0;
    std::string words;
    switch (state) {
    case CONCORD_RANK_MISSING:
      words = "MISSING";
      break;
    case CONCORD_RANK_RUNNING:
      words = "running";
      break;
    case CONCORD_RANK_WAITING:
      words = std::string("waiting in ") + kindText(slot.kind.load() & 15) +
              " #" + std::to_string(slot.sequence.load());
      break;
    case CONCORD_RANK_FINALIZED:
      words = "finalized";
      break;
    case CONCORD_RANK_ABORTED:
      words = "ABORTED";
      break;
    default:
      words = "DEAD";
    }
    bool alive = state == CONCORD_RANK_RUNNING || state == CONCORD_RANK_WAITING;
    if (alive && (process == 0 || process == 'Z'))
      words = "DEAD";
    else if (alive && (process == 'T' || process == 't'))
      words += ", STOPPED";
    wrong |= std::isupper(static_cast<unsigned char>(words[0])) ||
             words.find("STOPPED") != std::string::npos;
    states.push_back(words);
    text += "rank " + std::to_string(r) + " pid " + std::to_string(own) + ": " +
            words + "\n";
    ranks.push_back({{"rank", r}, {"pid", own}, {"state", words}});
  }
  for (const auto &[key, comm] : now.comms) {
    uint64_t most = 0;
    bool moving = false, dead = false;
    auto earlier = before.comms.find(key);
    for (size_t m = 0; m < comm.members.size(); ++m) {
      most = std::max(most, comm.members[m].sequence);
      moving |= earlier == before.comms.end() ||
                earlier->second.members.size() != comm.members.size() ||
                earlier->second.members[m].sequence != comm.members[m].sequence;
      int rank = comm.members[m].rank;
      dead |= rank < int(states.size()) &&
              states[size_t(rank)].rfind("DEAD", 0) == 0;
    }
    json members = json::array(), stragglers = json::array();
    std::string lines;
    const MemberLook *first = nullptr;
    bool mismatch = false, behind = false;
    for (const MemberLook &member : comm.members) {
      bool late = member.sequence < most;
      behind |= late;
      if (!late && !first)
        first = &member;
      mismatch |= !late && first && member.fingerprint != first->fingerprint;
      std::string state =
          member.rank < int(states.size()) ? states[size_t(member.rank)] : "?";
      lines += "  rank " + std::to_string(member.rank) + ": #" +
               std::to_string(member.sequence) + " " +
               (member.sequence ? operationText(member.fingerprint) : "-") +
               (late && !moving ? "  <- behind" : "") + "\n";
      if (late)
        stragglers.push_back(member.rank);
      members.push_back(
          {{"rank", member.rank},
           {"sequence", member.sequence},
           {"operation",
            member.sequence ? operationText(member.fingerprint) : ""},
           {"state", state}});
    }
    std::string verdict = "ok";
    if (mismatch && !moving)
      verdict = "MISMATCH";
    else if (dead)
      verdict = "DEAD";
    else if (behind && !moving)
      verdict = "INCOMPLETE";
    else if (comm.revoked)
      verdict = "REVOKED";
    else if (comm.broken)
      verdict = "BROKEN";
    wrong |= verdict != "ok";
    text += "communicator '" + printable(comm.name) + "': " + verdict +
            (moving ? ", moving" : "") +
            (comm.messages
                 ? ", " + std::to_string(comm.messages) + " messages not taken"
                 : "") +
            "\n" + lines;
    comms.push_back({{"name", printable(comm.name)},
                     {"verdict", verdict},
                     {"moving", moving},
                     {"messages", comm.messages},
                     {"members", members},
                     {"stragglers", moving ? json::array() : stragglers}});
  }
  report = {{"version", 1},
            {"world", segment.world()},
            {"ranks", ranks},
            {"communicators", comms},
            {"fault", wrong}};
  return wrong;
}

} // namespace

int live(const std::string &job, bool wantJson) {
  char *end;
  long pid = std::strtol(job.c_str(), &end, 10);
  if (*end || pid <= 0) {
    std::cerr << "comm-doctor: --live " << printable(job)
              << ": give the pid of a rank or of its launcher\n";
    return 2;
  }
  std::vector<int> memory = findMemory(pid);
  if (memory.empty()) {
    std::cerr << "comm-doctor: process " << pid
              << (::kill(pid_t(pid), 0) != 0 && errno == ESRCH
                      ? " does not exist\n"
                      : " has no memory of a Concord job that this user may "
                        "read\n");
    return 2;
  }
  bool wrong = false;
  std::string text;
  json reports = json::array();
  try {
    for (int fd : memory)
      wrong |= describe(*Segment::open(fd), text,
                        reports.emplace_back(json::object()));
  } catch (const Error &error) {
    std::cerr << "comm-doctor: process " << pid << ": " << printable(error.text)
              << "\n";
    return 2;
  }
  if (wantJson)
    std::cout << (reports.size() == 1 ? reports[0] : reports).dump(2) << "\n";
  else
    std::cout << text;
  return wrong ? 1 : 0;
}

} // namespace concord::doctor
