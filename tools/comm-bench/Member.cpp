//===- Member.cpp - comm-bench started once per rank ----------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Commands and replies travel as a broadcast and two gathers on a communicator
// of their own.
//
//===----------------------------------------------------------------------===//

#include "Member.h"
#include "Peers.h"

#include <algorithm>
#include <dlfcn.h>

using namespace concord::bench;

namespace {

/// What rank 0 broadcasts.
struct Order {
  uint64_t team = 0;
  Command command;
};

/// What a rank has to say before its numbers.
struct Word {
  int64_t status = 0;
  uint64_t numbers = 0;
};

} // namespace

/// A rank's place in a team.
struct Members::Place {
  Place(std::unique_ptr<Backend> taken, const Address &address)
      : backend(std::move(taken)), station(*backend, address) {}
  std::unique_ptr<Backend> backend;
  Station station;
};

Members::Members(const Options &options) : options(options) {
  bufferBytes = bufferBytesFor(options);
  Address address;
  address.capacity = bufferBytes;
  address.rotate = options.rotate;
  address.split = options.split;
  std::unique_ptr<ConcordRank> own =
      makeConcord(address, -1, Memory(options.memory));
  concord = own.get();
  me = concord->worldRank();
  ranks = concord->worldSize();
  check(concord_comm_split(concord->world, 0, me, nullptr, &control));
  findHosts();
  teams.push_back({"concord", concord->version(), {}, {}});
  places.push_back(std::make_unique<Place>(std::move(own), address));
  for (const std::string &peer : options.peers)
    addPeer(peer);
}

Members::~Members() {
  // The peers first: their MPI is Concord's.
  while (places.size() > 1)
    places.pop_back();
  if (control)
    concord_comm_destroy(control);
}

void Members::findHosts() {
  std::vector<concord_rank_entry> table(static_cast<size_t>(ranks));
  for (concord_rank_entry &entry : table)
    entry.struct_size = sizeof entry;
  check(concord_context_rank_table(concord->context, table.data(),
                                   uint32_t(ranks)));
  for (const concord_rank_entry &entry : table) {
    auto found = std::find(names.begin(), names.end(), entry.host);
    hostIndex.push_back(int(found - names.begin()));
    if (found == names.end())
      names.push_back(entry.host);
  }
  if (names.size() == 1)
    names.clear();
}

void Members::addPeer(const std::string &name) {
  // Hosts may share the cache: rank 0 compiles first, the others what they do
  // not find then. A rank that cannot tells all.
  std::string words;
  std::string file;
  for (int turn = 0; turn < 2; ++turn) {
    if ((turn == 0) == (me == 0))
      try {
        file = peerModule(name);
      } catch (const Failure &failure) {
        words = failure.what();
      }
    int32_t good = words.empty();
    check(concord_all_reduce(control, &good, &good, 1, CONCORD_DTYPE_I32,
                             CONCORD_REDUCTION_MIN, nullptr));
    if (!good)
      throw Failure(words.empty() ? "a rank on another host could not get the "
                                    "peer " +
                                        name
                                  : words);
  }
  void *handle = ::dlopen(file.c_str(), RTLD_NOW);
  auto make = handle ? reinterpret_cast<Backend *(*)(const char *)>(
                           ::dlsym(handle, "concord_bench_backend"))
                     : nullptr;
  if (!make) {
    const char *why = ::dlerror();
    throw Failure(file + ": " + (why ? why : "is no peer"));
  }
  Address address;
  address.capacity = bufferBytes;
  address.rotate = options.rotate;
  address.split = options.split;
  std::unique_ptr<Backend> backend(make(options.split.c_str()));
  if (backend->worldSize() != ranks || backend->worldRank() != me)
    throw Failure("peer " + name + " sees rank " +
                  std::to_string(backend->worldRank()) + " of " +
                  std::to_string(backend->worldSize()) + ", Concord " +
                  std::to_string(me) + " of " + std::to_string(ranks) +
                  ": the ranks were started by another library's mpirun");
  teams.push_back({name, backend->version(), {}, {}});
  places.push_back(std::make_unique<Place>(std::move(backend), address));
}

Answer Members::obey(size_t team, const Command &command) {
  std::vector<double> numbers;
  Reply reply = places[team]->station.obey(command, numbers);
  Word word{reply.status, numbers.size()};
  std::vector<Word> words(me == 0 ? size_t(ranks) : 1);
  check(concord_gather(control, &word, words.data(), sizeof word,
                       CONCORD_DTYPE_U8, 0, nullptr));
  // All take part with as much room as the longest needs.
  uint64_t most = 0;
  for (const Word &each : words)
    most = std::max(most, each.numbers);
  check(concord_broadcast(control, &most, &most, 1, CONCORD_DTYPE_U64, 0,
                          nullptr));
  Answer answer;
  std::vector<double> all(me == 0 ? size_t(ranks) * most : 0);
  numbers.resize(most);
  if (most)
    check(concord_gather(control, numbers.data(), all.data(), most,
                         CONCORD_DTYPE_F64, 0, nullptr));
  if (me != 0)
    return answer;
  for (size_t r = 0; r < size_t(ranks); ++r) {
    if (words[r].status < 0)
      answer.supported = false;
    else
      answer.wrong += words[r].status;
    auto from = all.begin() + long(r * most);
    answer.numbers.emplace_back(from, from + long(words[r].numbers));
  }
  return answer;
}

Answer Members::command(size_t team, const Command &command) {
  Order order{team, command};
  check(concord_broadcast(control, &order, &order, sizeof order,
                          CONCORD_DTYPE_U8, 0, nullptr));
  return obey(team, command);
}

void Members::serve() {
  for (;;) {
    Order order;
    check(concord_broadcast(control, &order, &order, sizeof order,
                            CONCORD_DTYPE_U8, 0, nullptr));
    if (order.command.verb == kQuit)
      return;
    obey(order.team, order.command);
  }
}

void Members::finish() {
  Order order;
  order.command.verb = kQuit;
  check(concord_broadcast(control, &order, &order, sizeof order,
                          CONCORD_DTYPE_U8, 0, nullptr));
}
