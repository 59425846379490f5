//===- HostsThreads.cpp - Hosts that are parts of one process -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `hosts-threads LAYOUT WHAT [ARGUMENT]`: the ranks of hosts-rank as threads,
// so that ThreadSanitizer sees all of what is between hosts. LAYOUT has the
// ranks of each host: 2+1+1. The ranks of a host share its memory at one
// address; a transport of this process carries bytes between hosts.
//
// It delays at random, and orders no more than any transport must, so that it
// hides no race: a message is copied out of the sender's own memory when the
// receiver takes it, or beforehand, as chance has it, and only the receiver
// synchronises with the sender, without a lock. With HOSTS_HOLD=MS rank 0 takes
// a message only after so long, and nobody waits until it has taken it.
//
//===----------------------------------------------------------------------===//

#include "HostsRank.h"
#include "context/Context.h"
#include "transport/Transport.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

/// A message. The sender writes it, then links it; `taken` is the receiver's.
struct Parcel {
  uint32_t tag = 0;
  const char *data = nullptr;
  uint64_t bytes = 0;
  std::vector<char> copy; ///< of data, where that is free at once
  double sent = 0;        ///< in seconds
  std::atomic<bool> taken{false};
  std::atomic<Parcel *> next{nullptr};
};

/// From one rank to another one.
struct Channel {
  std::deque<Parcel> all = std::deque<Parcel>(1); ///< the sender's
  Parcel *seen = &all.front();                    ///< the receiver's
  std::deque<Parcel *> waiting;                   ///< likewise: unmatched ones
};

struct Request {
  enum class Kind { Free, Sent, Receive, Exchange } kind = Kind::Free;
  Parcel *parcel = nullptr; ///< Sent
  int peer = 0;             ///< Receive
  uint32_t tag = 0;
  char *data = nullptr; ///< Exchange: of all ranks
  uint64_t bytes = 0;
  bool done = false, tooLong = false;
  size_t round = 0; ///< Exchange
};

/// What one rank has of the transport; only its thread touches it.
struct Station {
  int rank = 0;
  std::minstd_rand chance;
  std::deque<Request> requests;
  std::vector<size_t> free;
  std::vector<std::deque<size_t>> posted; ///< receives by peer, in order
  size_t rounds = 0;                      ///< exchanges so far

  bool one(unsigned in) { return chance() % in == 0; }
  size_t take() {
    if (free.empty()) {
      requests.emplace_back();
      return requests.size() - 1;
    }
    size_t index = free.back();
    free.pop_back();
    requests[index] = {};
    return index;
  }
};

int numRanks;
double holdSeconds;                             ///< HOSTS_HOLD
std::vector<std::unique_ptr<Channel>> channels; ///< by sender and receiver
thread_local Station station;

Channel &channel(int from, int to) {
  return *channels[size_t(from * numRanks + to)];
}

/// What has been given to each exchange of bring-up.
std::mutex roundsMutex;
std::deque<std::vector<std::vector<char>>> rounds;

int32_t openHere(int32_t *rank, int32_t *world, char *words, uint64_t bytes) {
  *rank = station.rank;
  *world = numRanks;
  std::snprintf(words, bytes, "threads of one process");
  return 0;
}

int32_t exchangeAll(const void *mine, void *all, uint64_t bytes,
                    concord_transport_request *request) {
  size_t index = station.take();
  Request &made = station.requests[index];
  made.kind = Request::Kind::Exchange;
  made.data = static_cast<char *>(all);
  made.bytes = bytes;
  made.round = station.rounds++;
  std::lock_guard lock(roundsMutex);
  while (rounds.size() <= made.round)
    rounds.emplace_back(size_t(numRanks));
  const char *begin = static_cast<const char *>(mine);
  rounds[made.round][size_t(station.rank)].assign(begin, begin + bytes);
  *request = index + 1;
  return 0;
}

int32_t sendTo(int32_t rank, uint32_t tag, const void *data, uint64_t bytes,
               int32_t synchronous, concord_transport_request *request) {
  Channel &to = channel(station.rank, rank);
  Parcel &last = to.all.back();
  Parcel &made = to.all.emplace_back();
  made.tag = tag;
  made.data = static_cast<const char *>(data);
  made.bytes = bytes;
  made.sent = concord::hosts::seconds();
  bool buffered = !synchronous && (station.one(2) || holdSeconds > 0);
  if (buffered) {
    made.copy.assign(made.data, made.data + bytes);
    made.data = made.copy.data();
  }
  last.next.store(&made, std::memory_order_release);
  *request = 0;
  if (buffered)
    return 0;
  size_t index = station.take();
  station.requests[index].kind = Request::Kind::Sent;
  station.requests[index].parcel = &made;
  *request = index + 1;
  return 0;
}

int32_t receiveFrom(int32_t rank, uint32_t tag, void *data, uint64_t bytes,
                    concord_transport_request *request) {
  size_t index = station.take();
  Request &made = station.requests[index];
  made.kind = Request::Kind::Receive;
  made.peer = rank;
  made.tag = tag;
  made.data = static_cast<char *>(data);
  made.bytes = bytes;
  station.posted[size_t(rank)].push_back(index);
  *request = index + 1;
  return 0;
}

/// Take what has come from a rank.
void progress(int from) {
  Channel &incoming = channel(from, station.rank);
  while (Parcel *next = incoming.seen->next.load(std::memory_order_acquire)) {
    incoming.waiting.push_back(next);
    incoming.seen = next;
  }
  auto &posted = station.posted[size_t(from)];
  for (auto each = posted.begin(); each != posted.end();) {
    Request &receive = station.requests[*each];
    auto found = incoming.waiting.begin();
    while (found != incoming.waiting.end() && (*found)->tag != receive.tag)
      ++found;
    if (found == incoming.waiting.end()) {
      ++each;
      continue;
    }
    if (station.one(8))
      return; // later
    Parcel &parcel = **found;
    if (station.rank == 0 &&
        concord::hosts::seconds() < parcel.sent + holdSeconds)
      return;
    receive.tooLong = parcel.bytes > receive.bytes;
    receive.bytes = std::min(receive.bytes, parcel.bytes);
    if (receive.bytes)
      std::memcpy(receive.data, parcel.data, receive.bytes);
    receive.done = true;
    std::vector<char>().swap(parcel.copy);
    parcel.taken.store(true, std::memory_order_release);
    incoming.waiting.erase(found);
    each = posted.erase(each);
  }
}

bool exchanged(const Request &request) {
  std::lock_guard lock(roundsMutex);
  const auto &given = rounds[request.round];
  for (const std::vector<char> &each : given)
    if (each.size() != request.bytes)
      return false;
  for (size_t r = 0; r < given.size(); ++r)
    std::memcpy(request.data + r * request.bytes, given[r].data(),
                request.bytes);
  return true;
}

int32_t test(concord_transport_request *request, uint64_t *bytes) {
  if (*request == 0)
    return CONCORD_TRANSPORT_DONE;
  if (station.one(16))
    std::this_thread::yield();
  for (int from = 0; from < numRanks; ++from)
    progress(from);
  size_t index = *request - 1;
  Request &tested = station.requests[index];
  switch (tested.kind) {
  case Request::Kind::Sent:
    tested.done = tested.parcel->taken.load(std::memory_order_acquire);
    break;
  case Request::Kind::Exchange:
    tested.done = exchanged(tested);
    break;
  default:
    break;
  }
  if (!tested.done)
    return CONCORD_TRANSPORT_PENDING;
  if (bytes && tested.kind == Request::Kind::Receive)
    *bytes = tested.bytes;
  bool failed = tested.tooLong;
  tested.kind = Request::Kind::Free;
  station.free.push_back(index);
  *request = 0;
  return failed ? CONCORD_TRANSPORT_FAILED : CONCORD_TRANSPORT_DONE;
}

/// A receive may still be filled, a message still be taken.
void abandon(concord_transport_request *request, int32_t) { *request = 0; }

const char *errorWords() { return "a message longer than its receive"; }
uint32_t maxTag() { return 1 << 20; }
void closeHere(int32_t) {}

constexpr concord_transport kTransport = {CONCORD_TRANSPORT_ABI,
                                          sizeof(concord_transport),
                                          openHere,
                                          exchangeAll,
                                          sendTo,
                                          receiveFrom,
                                          test,
                                          abandon,
                                          errorWords,
                                          maxTag,
                                          closeHere};

} // namespace

int main(int argc, char **argv) {
  std::vector<int> hostOf;
  int hosts = 0;
  for (const char *at = argc > 2 ? argv[1] : ""; *at; ++hosts) {
    char *end;
    long count = std::strtol(at, &end, 10);
    if (end == at || count < 1 || count > 8 || (*end && *end != '+')) {
      hostOf.clear();
      break;
    }
    hostOf.insert(hostOf.end(), size_t(count), hosts);
    at = *end ? end + 1 : end;
  }
  if (hosts < 2 || hostOf.empty()) {
    std::fprintf(stderr, "usage: hosts-threads 2+1+1 WHAT [ARGUMENT]; WHAT as "
                         "of hosts-rank\n");
    return 2;
  }
  numRanks = int(hostOf.size());
  if (const char *hold = std::getenv("HOSTS_HOLD"))
    holdSeconds = std::atof(hold) / 1000;
  for (int i = 0; i < numRanks * numRanks; ++i)
    channels.push_back(std::make_unique<Channel>());
  std::vector<concord_job *> jobs(static_cast<size_t>(hosts));
  for (int h = 0; h < hosts; ++h) {
    concord::hosts::check(
        concord_job_create(numRanks, uint64_t(256) << 20, &jobs[size_t(h)]),
        "job");
    jobs[size_t(h)]->transport = &kTransport;
    jobs[size_t(h)]->host = "h" + std::to_string(h);
  }
  std::atomic<int> status{0};
  std::vector<std::thread> threads;
  for (int r = 0; r < numRanks; ++r)
    threads.emplace_back([&, r] {
      station.rank = r;
      station.chance.seed(unsigned(r + 1));
      station.posted.resize(size_t(numRanks));
      concord_context_config config{};
      config.struct_size = sizeof config;
      config.thread_level = CONCORD_THREAD_SINGLE;
      config.job = jobs[size_t(hostOf[size_t(r)])];
      config.rank = r;
      if (int own = concord::hosts::runRank(argc - 1, argv + 1, config))
        status.store(own);
    });
  for (std::thread &thread : threads)
    thread.join();
  for (concord_job *job : jobs)
    concord::hosts::check(concord_job_destroy(job), "job");
  return status.load();
}
