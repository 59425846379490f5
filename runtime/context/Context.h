//===- Context.h - One rank, its communicators and streams ------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The objects behind the opaque types of concord.h.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_CONTEXT_CONTEXT_H
#define CONCORD_RUNTIME_CONTEXT_CONTEXT_H

#include "algorithms/Packing.h"
#include "algorithms/Recency.h"
#include "algorithms/Rounds.h"
#include "algorithms/Score.h"
#include "bootstrap/JobKey.h"
#include "concord/concord.h"
#include "context/Env.h"
#include "diagnosis/IssueLog.h"
#include "diagnosis/Log.h"
#include "engine/Op.h"
#include "heap/Heap.h"
#include "heap/Segment.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace concord::rt {
class Gate;
class Hosts;
class Leader;
struct Span;
class Watchdog;

/// Objects that were destroyed, the last few of them: a late use still finds
/// `destroyed` in them.
template <typename T> class Graves {
public:
  void bury(T *object) {
    object->destroyed = true;
    buried.emplace_back(object);
    if (buried.size() > kMost)
      buried.erase(buried.begin());
  }

private:
  static constexpr size_t kMost = 64;
  std::vector<std::unique_ptr<T>> buried;
};
} // namespace concord::rt

struct concord_transport;

struct concord_job {
  std::shared_ptr<concord::rt::Segment> segment;
  std::atomic<int> contexts{0};
  /// Where hosts are parts of one process (tests): this one's name, and what
  /// carries bytes to the others. Null: there are no others.
  const concord_transport *transport = nullptr;
  std::string host;
};

struct concord_comm {
  concord_context *context = nullptr;
  concord::rt::CommBlock block;
  uint64_t key = 0;
  int tableIndex = -1;
  int me = 0, size = 1;
  std::vector<int32_t> ranks; ///< world ranks, in group order
  std::string name;
  int32_t priority = 0;
  uint32_t splits = 0; ///< numbers the communicators made from this one
  uint32_t pools = 0;  ///< and the pools

  uint64_t sequence = 0;  ///< of the last operation that was started
  uint64_t instances = 0; ///< collectives issued
  uint32_t logDomain = 0; ///< its line in the issue log
  uint64_t tick = 0;      ///< phases finished, the same at all members
  uint64_t claims = 0;    ///< pieces that all finished operations had
  uint64_t known = 0;     ///< all members have published at least this sequence
  uint64_t oneWay = 0;    ///< hash of the one-way operations, see Slot
  uint64_t unheardFrom = 0; ///< the first of them that is not compared, or 0
  bool ahead = false; ///< those that the last operation needed had published
  int32_t status = 0; ///< first error; it is broken then
  std::string firstError;
  /// When this rank first saw that another one has broken it; 0: not yet.
  std::atomic<int64_t> brokenSeen{0};

  concord::rt::Op *head = nullptr, *tail = nullptr; ///< collectives, in order
  std::vector<concord::rt::Op *> messages; ///< point-to-point, any order
  bool active = false;                     ///< is in the context's list
  bool destroyed = false;                  ///< kept to catch late uses
  std::vector<concord::rt::View> in, out;  ///< of the head operation
  concord::rt::LastForm last;
  /// Of slots, of staging memory: where data goes one way; where all members
  /// store and read.
  concord::rt::Packing packing[2] = {concord::rt::Packing(false),
                                     concord::rt::Packing(true)};
  concord::rt::Packing staged[2] = {concord::rt::Packing(false),
                                    concord::rt::Packing(true)};
  concord::rt::Prepared prepared;
  /// The last call, if one like it can start at once, and its operation.
  concord::rt::Asked asked;
  std::unique_ptr<concord::rt::Op> again;
  /// The functions of the last reduction, and which it was.
  uint32_t reduceKey = ~0u;
  concord::rt::ReduceFunction reduce = nullptr;
  concord::rt::StoreFunction reduceStored = nullptr, reduceStreamed = nullptr;
  concord::rt::View ownStaged[2]; ///< this member's staged input and output
  std::vector<uint64_t> peerDisplacement;          ///< uneven all_to_all
  std::vector<uint64_t> sendTicket, receiveTicket; ///< messages begun, per peer
  std::vector<uint64_t> sendDone, receiveDone;     ///< messages finished
  std::vector<uint64_t> sendPart, receivePart;     ///< parts finished
  char *staging = nullptr; ///< two halves: input, output
  uint64_t stagingBytes = 0;
  std::unique_ptr<concord::rt::Span> span; ///< has members on other hosts

  concord_comm();
  ~concord_comm();
};

struct concord_stream {
  concord_context *context = nullptr;
  int32_t priority = 0;
  uint32_t id = 0; ///< in the issue log; 0 is stream NULL
  concord::rt::Op *head = nullptr, *tail = nullptr;
  uint64_t enqueued = 0, completed = 0;
  int32_t status = 0;
  std::string firstError;
  bool destroyed = false; ///< kept to catch late uses
};

struct concord_event {
  concord_context *context = nullptr;
  bool destroyed = false; ///< kept to catch late uses
  concord_stream *stream = nullptr;
  uint64_t ticket = 0; ///< happens when the stream has completed this many
};

/// Communicators kept for reuse. Every member of the parent has the same list,
/// whether it belongs to them or not, and so decides the same.
struct concord_pool {
  struct Kept {
    uint32_t ticket = 0;
    std::vector<int32_t> members; ///< group ranks of the parent
    int32_t priority = 0;
    bool resident = false, inUse = false;
    uint64_t lastUse = 0, bytes = 0, connections = 0;
    concord_comm *comm = nullptr; ///< null where this rank is no member
  };
  concord_comm *parent = nullptr;
  uint32_t number = 0; ///< among the pools of the parent
  uint32_t maxComms = 0;
  uint64_t maxBytes = 0, maxConnections = 0;
  std::vector<Kept> kept;
  uint32_t tickets = 0;
  uint64_t uses = 0, hits = 0, misses = 0, evictions = 0;
};

struct concord_context {
  std::shared_ptr<concord::rt::Segment> segment;
  concord_job *job = nullptr;
  int rank = 0, world = 1;
  int threadLevel = CONCORD_THREAD_SINGLE;
  int gateMode = CONCORD_GATE_CHECK;
  double hangSeconds = 0;  ///< until a hang is explained; 0: never
  std::string issueFolder; ///< where issue logs are left; "": nowhere
  bool gateChosen = false; ///< asked for, rather than the default
  bool stageAlways = false;
  double timeoutSeconds = 300;
  double connectSeconds = 120;
  double gateSeconds = 300; ///< that an issue waits for its turn
  bool oversubscribed = false;
  bool joined = false;
  bool grown = false; ///< made by concord_comm_grow, with its communicator
  /// Unique ids that this rank has met others by, here and in the jobs that
  /// this one was grown from; each is good for one job.
  std::vector<concord::rt::JobKey> usedIds;
  int64_t pid = 0; ///< that it was made in; a forked child has another
  concord::rt::Log log;
  std::vector<std::string> deviceKinds; ///< by rank
  uint64_t alignment = 64;              ///< that suits the devices of all ranks
  std::unique_ptr<concord::rt::Leader> leader; ///< rank 0, during bring-up
  std::unique_ptr<concord::rt::Hosts> hosts;   ///< null: all on this host
  bool hugePages = true;                       ///< CONCORD_HUGE_PAGES
  uint64_t cacheBytes = 0;                     ///< of the last level
  uint64_t singleCopy = 0; ///< operands outside the heap: least bytes, ~0 never
  const concord::rt::Arithmetic *arithmetic = nullptr;
  concord::rt::Recency recency;
  std::vector<concord::rt::Score> scores; ///< CONCORD_ALGORITHM
  /// By this host's calibration; taken where those of all ranks are the same.
  std::vector<concord::rt::Score> hostScores;
  concord::rt::Link link; ///< CONCORD_LINK
  concord::rt::Heap heap;

  /// Thread level: held by the thread that is inside.
  std::atomic<bool> inside{false};
  std::mutex mutex;

  concord_comm *worldComm = nullptr;
  std::vector<concord_comm *> comms;
  /// The last ones that were destroyed, so that using one is an error and not
  /// an accident.
  concord::rt::Graves<concord_comm> commGraves;
  concord::rt::Graves<concord_stream> streamGraves;
  concord::rt::Graves<concord_event> eventGraves;
  /// Buffers that were announced, and how often.
  std::unordered_map<const void *, unsigned> registered;
  std::vector<concord_comm *> activeComms; ///< by priority, highest first
  std::vector<concord_stream *> streams;
  std::vector<concord_event *> events;
  std::vector<concord_program *> programs;
  std::vector<concord_pool *> pools;
  std::vector<std::unique_ptr<concord::rt::Op>> pool;
  std::vector<concord::rt::Op *> spare;
  std::vector<concord::rt::Op *> streamOps; ///< groups and event waits
  unsigned inFlight = 0;  ///< operations the engine has to look at
  bool computing = false; ///< a kernel polls, which has work of its own

  /// Communication slots of the device, 0 for no limit. A launch holds one from
  /// its start to the end of its last operation and cannot be pre-empted.
  unsigned deviceSlots = 0;
  struct Launch {
    uint64_t number = 0;
    unsigned unfinished = 0;
    bool started = false;
  };
  std::vector<Launch> launches; ///< issued and not finished; with slots only
  uint32_t streamsMade = 0;

  concord::rt::IssueLog issues;
  concord::issuelog::Block *logBlock = nullptr; ///< null when off
  std::unique_ptr<concord::rt::Gate> gate;      ///< null: no plan loaded
  /// The gate's mode before a program brought its plan, with which it goes;
  /// none where the plan was loaded by itself.
  std::optional<int> gateModeBefore;

  /// Groups of calls that are open. With THREAD_MULTIPLE each thread has its
  /// own, so that the calls of the others do not get into it; else there is
  /// one.
  struct Group {
    uint32_t thread = 0;
    int depth = 0;
    std::vector<concord::rt::Op *> ops;
  };
  std::vector<Group> groups;
  /// That of the calling thread, or null.
  Group *group() { return groups.empty() ? nullptr : findGroup(); }
  Group *findGroup();
  uint32_t groupThread() const;
  bool inGroup(auto is) const {
    for (const Group &each : groups)
      for (const concord::rt::Op *op : each.ops)
        if (is(*op))
          return true;
    return false;
  }

  /// Programs whose steps run, with the thread that runs them; one per issuer.
  struct Running {
    uint32_t thread = 0;
    concord_program *program = nullptr;
  };
  std::vector<Running> running;
  uint32_t loads = 0;
  std::vector<std::pair<uint64_t, uint32_t>> groupsMade; ///< key, times

  std::unique_ptr<concord::rt::Watchdog> watchdog;
  /// Set by the watchdog: bit r = rank r is dead.
  std::atomic<uint64_t> dead{0};
  std::atomic<int32_t> asyncStatus{0};

  concord_context();
  ~concord_context();
};

namespace concord::rt {

using Context = ::concord_context;
using Comm = ::concord_comm;

/// Guard of every entry point that touches a context: takes the lock at
/// THREAD_MULTIPLE, detects two threads at once below it.
class Entry {
public:
  explicit Entry(Context &context) : context(context) {
    if (context.threadLevel == CONCORD_THREAD_MULTIPLE) {
      context.mutex.lock();
      held = true;
    } else {
      // Not an exchange: that would wait until every flag this thread has
      // stored is in memory. A thread that stays inside is seen all the same.
      held = !context.inside.load(std::memory_order_relaxed);
      if (held)
        context.inside.store(true, std::memory_order_relaxed);
    }
  }
  ~Entry() {
    if (!held)
      return;
    if (context.threadLevel == CONCORD_THREAD_MULTIPLE)
      context.mutex.unlock();
    else
      context.inside.store(false, std::memory_order_release);
  }
  /// 0, or CONCORD_ERROR_THREAD.
  int32_t status() const { return held ? CONCORD_OK : refused(); }
  Entry(const Entry &) = delete;

private:
  Context &context;
  bool held;
  int32_t refused() const;
};

/// Make a communicator; all `ranks` (world ranks, in group order) call it with
/// the same key. `synchronise`: return only when all have made it.
/// `adopt`: where another rank has made it already, its members are taken, so
/// that all agree although each may have seen other ranks alive.
Comm *makeComm(Context &context, uint64_t key, std::vector<int32_t> ranks,
               std::string name, int32_t priority, bool synchronise,
               bool adopt = false);
/// Release; nothing may be in flight.
void dropComm(Comm *comm);

uint64_t hashWords(std::initializer_list<uint64_t> words);
uint64_t hashText(uint64_t seed, const std::string &text);

} // namespace concord::rt

#endif // CONCORD_RUNTIME_CONTEXT_CONTEXT_H
