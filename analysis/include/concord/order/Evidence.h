//===- Evidence.h - What a hung job left behind -----------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Readers of Flight Recorder dumps (JSON and pickle), HCCL entry and error
// logs, NCCL logs and what PyTorch's watchdog says of it, stacks (of debuggers
// and of Python) and rank tables; all merged into one issue sequence per rank
// over all domains; and the diagnosis made from it.
// The bytes are foreign: counts and depths are bounded, pickles are interpreted
// as data and execute nothing, and what is not understood is counted and shown.
//
// Thread-safety: a Job is built by one thread (which may use others inside);
// diagnose() only reads it.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_ORDER_EVIDENCE_H
#define CONCORD_ORDER_EVIDENCE_H

#include "concord/order/Judge.h"

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace concord::issuelog {
struct Block;
}

namespace concord::order::evidence {

enum class State : uint8_t { Unknown, Scheduled, Started, Completed };

/// Strings stored once.
class Strings {
public:
  Strings() = default;
  Strings(Strings &&) = default;
  Strings &operator=(Strings &&) = default;
  Strings(const Strings &) = delete; // `list` points into `ids`
  Strings &operator=(const Strings &) = delete;
  uint32_t id(std::string_view text);
  const std::string &operator[](uint32_t id) const { return *list[id]; }
  size_t size() const { return list.size(); }

private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const {
      return std::hash<std::string_view>{}(s);
    }
  };
  std::unordered_map<std::string, uint32_t, Hash, std::equal_to<>> ids;
  std::vector<const std::string *> list;
};

/// One issued operation of one rank.
struct Issue {
  uint32_t sequence = kNone; ///< index into Job::sequences
  int64_t index = -1;        ///< instance number as recorded, -1 if not
  uint32_t signature =
      kNone; ///< string: what must agree, e.g. "all_reduce(n=4,Float)"
  uint32_t kind = kNone; ///< string
  State state = State::Unknown;
  bool timedOut = false;
  uint32_t stream = kNone, thread = kNone; ///< strings
  uint64_t order = 0; ///< position in the rank's issue order; equal in a group
  uint32_t file = kNone, line = 0; ///< file: string; line or record number
  uint32_t where = kNone;          ///< string: the program's line, if recorded
};

/// A series of instances that members number alike: the collectives of a
/// domain, or one direction of its transfers.
struct Sequence {
  bool transfer = false;
  uint32_t domain = kNone;            ///< index into Job::domains
  Rank source = -1, destination = -1; ///< transfers; -1: peer not recorded
};

struct Domain {
  std::string name; ///< as the evidence names it
  std::string description;
  std::vector<Rank> members; ///< global ranks by group rank; -1: unknown
};

/// A host thread that stood still, from a stack; or where one stood.
struct HostWait {
  /// The more telling first: of a rank's waits the least one is reported.
  enum class Kind : uint8_t {
    DeviceSync,
    StreamSync,
    Allocation,
    Free,
    Load,
    Launch, ///< the launch queue is full
    Communicator,
    HostCollective, ///< one that the host waits in, e.g. of Gloo or MPI
    Gate,           ///< for the turn of another issuer of the rank
    Lock,
    Exception, ///< a traceback: the rest was never issued
    Waiting,   ///< the main thread, for something else
    Running    ///< the main thread, in this function
  };
  Kind kind = Kind::DeviceSync;
  std::string function; ///< the frame that told
  std::string thread;
  std::string via; ///< the first frame of the program above it
  std::string file;
  uint32_t line = 0;
  bool main = false; ///< of the main thread
  bool died = false; ///< an Exception that a launcher tells: how it ended
};

/// A line in which a library said what it gave up on.
struct ErrorLine {
  std::string code, text, file;
  uint32_t line = 0;
  std::string tag, group, stream;
  Rank rank = -1, remote = -1; ///< group ranks as printed; -1: unknown
};

struct RankEvidence {
  bool present = false;        ///< an issue record of this rank was read
  std::vector<Issue> issues;   ///< in issue order
  bool truncatedStart = false; ///< the ring has dropped the beginning
  bool truncatedEnd = false;   ///< the file was cut off
  std::vector<HostWait> waits;
  std::vector<ErrorLine> errors;
  std::vector<std::string> files;
};

struct Job {
  Strings strings;
  std::vector<Domain> domains;
  std::vector<Sequence> sequences;
  std::map<Rank, RankEvidence> ranks;
  bool haveFlightRecorder = false, haveHccl = false, haveNccl = false,
       haveStacks = false, haveRankTable = false, haveIssueLogs = false;
  bool nothingMoves = false; ///< seen by a watchdog when it was recorded
  uint64_t filesRead = 0, bytesRead = 0;
  uint64_t linesUnderstood = 0, linesNotUnderstood = 0, linesOther = 0;
  std::vector<std::string> examplesNotUnderstood; ///< at most 8
  std::vector<std::string> notes;                 ///< gaps, ambiguities
  std::vector<Finding> tableFindings;             ///< of rank tables

  uint32_t domainId(const std::string &name, const std::vector<Rank> &members,
                    const std::string &description = {});
  uint32_t sequenceId(uint32_t domain, bool transfer, Rank source = -1,
                      Rank destination = -1);
  std::string sequenceName(uint32_t sequence) const;

private:
  std::map<std::pair<std::string, std::vector<Rank>>, uint32_t> domainIds;
  std::map<std::tuple<uint32_t, bool, Rank, Rank>, uint32_t> sequenceIds;
};

struct ReadError {
  std::string path, message;
};

struct ReadOptions {
  unsigned threads = 0; ///< 0: as many as the machine has
  uint64_t maxFileBytes = 8ull << 30;
};

/// Read files and directories (recursively, links not followed). Unreadable
/// ones are listed in `errors`; files that are no evidence are noted.
Job readEvidence(const std::vector<std::string> &paths,
                 const ReadOptions &options, std::vector<ReadError> &errors);

struct Diagnosis {
  std::vector<Finding> findings; ///< the culprit first
  std::vector<std::string> warnings;
  std::vector<std::string>
      missing; ///< which evidence is missing, and how to record it
  bool fault() const;
};

/// Who holds up whom. The evidence is taken to be of a hung job: where nothing
/// in it can move, a member that has not come is a fault although nothing says
/// how long the others have waited. With `moving` it is a straggler.
Diagnosis diagnose(const Job &job, bool moving = false);

/// What a file holds, by content and not by name.
enum class Format : uint8_t {
  Unknown,
  Case,
  FlightRecorderJson,
  FlightRecorderPickle,
  HcclLog,
  NcclLog,
  Stack,
  RankTable,
  IssueLog,
  Elf,
  Plan
};
Format detect(std::string_view head, std::string_view path);

/// UTF-16, text with a byte order mark, and text with a terminal's escape
/// sequences as plain UTF-8; nothing where the bytes are that already, or are
/// no text.
std::optional<std::string> plainText(std::string_view bytes);

/// Single files, for tests and fuzzers. They return false with `error` and
/// leave the job as it was if the text is no such thing.
bool readFlightRecorder(std::string_view bytes, const std::string &path,
                        Rank rank, Job &job, std::string &error);
bool readRankTable(std::string_view text, const std::string &path, Job &job,
                   std::string &error);
void readStack(std::string_view text, const std::string &path, Rank rank,
               Job &job);
/// Some line of the text is a stack's.
bool looksLikeStack(std::string_view text);
void readHcclLogs(
    const std::vector<std::pair<std::string, std::string_view>> &files,
    Job &job);

/// NCCL's lines of its subsystems INIT and COLL, and those in which PyTorch's
/// watchdog gives up on an operation (of ranks without other records).
void readNcclLogs(
    const std::vector<std::pair<std::string, std::string_view>> &files,
    Job &job);
/// Some line of the text is one of these.
bool looksLikeNcclLog(std::string_view text);

/// Which ranks ended, and how, in the words of mpirun, srun and torchrun.
void readLauncherOutput(std::string_view text, const std::string &path,
                        Job &job);
bool looksLikeLauncherOutput(std::string_view text);

/// One rank's block of concord/issuelog.h.
bool isIssueLog(std::string_view bytes);
bool readIssueLog(std::string_view bytes, const std::string &path, Job &job,
                  std::string &error);
/// What a rank was doing, in words.
std::string issueLogText(const issuelog::Block &block);

/// The rank that a file's name tells ("…_rank_12.json", "dump12"): the last
/// number in its stem, else in the names of its folders; -1 if none.
Rank rankOfPath(const std::string &path);

/// A shell script that gathers the evidence from hosts over ssh.
std::string collectScript();

} // namespace concord::order::evidence

#endif // CONCORD_ORDER_EVIDENCE_H
