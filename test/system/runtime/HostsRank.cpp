//===- HostsRank.cpp - One rank of the tests between hosts ----------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `hosts-rank WHAT [ARGUMENT]`, started by mpirun (HostsMain.cpp), or as one of
// several threads (HostsThreads.cpp). Exit code 0 when everything was as it
// must be; else a line on standard error says what was not.
//
//   collectives [quick]  every collective, several types, sizes, layouts,
//                roots, in and out of place, heap and foreign memory, against a
//                reference
//   messages     send, recv and batches, in both directions
//   comms        split, groups, priorities, streams, many communicators
//   bits         all_reduce of reals: the same bits at all ranks and in every
//                run, in the documented order
//   allocations  a step allocates nothing after the first
//   mismatch     ranks of different hosts issue different things
//   death RANK [KIND]  that rank kills itself, between two operations or in the
//                middle of one; the others must be told who it was
//   stopped RANK  that rank stops; the others must be told whom they waited for
//   form KIND BYTES NAME  the form that such an operation takes
//   abort, revoke, early  what the names say
//   overtaken    an operation that all have entered ends although a later one
//                is known to be broken before its data has come
//   lost         exchanges until the other host is gone
//   fused        a kernel that reads its peers' memory is refused
//   table        prints the hosts of all ranks
//
//===----------------------------------------------------------------------===//

#include "HostsRank.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <malloc.h>
#include <string>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace concord::hosts;

thread_local concord_context *concord::hosts::context;
thread_local concord_comm *concord::hosts::world;
thread_local int concord::hosts::me, concord::hosts::ranks;

void concord::hosts::wrong(const std::string &what) {
  std::fprintf(stderr, "hosts-rank: rank %d: %s\n", me, what.c_str());
  std::fflush(stderr);
  concord_context_abort(context, what.c_str());
  std::_Exit(1);
}

void concord::hosts::check(int32_t status, const char *what) {
  if (status != CONCORD_OK)
    wrong(std::string(what) + ": " + concord_status_name(status) + ": " +
          concord_last_error());
}

double concord::hosts::seconds() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

namespace {

struct Type {
  int32_t dtype;
  const char *name;
  size_t bytes;
};
constexpr Type kTypes[] = {
    {CONCORD_DTYPE_F32, "f32", 4},   {CONCORD_DTYPE_F64, "f64", 8},
    {CONCORD_DTYPE_BF16, "bf16", 2}, {CONCORD_DTYPE_F16, "f16", 2},
    {CONCORD_DTYPE_I32, "i32", 4},   {CONCORD_DTYPE_U8, "u8", 1},
    {CONCORD_DTYPE_I64, "i64", 8}};

uint16_t narrow(int32_t dtype, float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (dtype == CONCORD_DTYPE_BF16)
    return uint16_t(bits >> 16); // small whole numbers are exact
  if (value == 0)
    return 0;
  return uint16_t(((bits >> 23 & 255) - 112) << 10 | (bits & 0x7fffff) >> 13 |
                  (bits >> 16 & 0x8000));
}

/// Element i of rank r's data: a small whole number, so that every type holds
/// every sum exactly.
int valueOf(int r, uint64_t i) {
  return int((uint64_t(r) * 7 + i * 3) % 5) + 1;
}

void put(const Type &type, char *at, uint64_t i, double value) {
  char *to = at + i * type.bytes;
  switch (type.dtype) {
  case CONCORD_DTYPE_F32: {
    float v = float(value);
    std::memcpy(to, &v, 4);
    return;
  }
  case CONCORD_DTYPE_F64:
    std::memcpy(to, &value, 8);
    return;
  case CONCORD_DTYPE_BF16:
  case CONCORD_DTYPE_F16: {
    uint16_t v = narrow(type.dtype, float(value));
    std::memcpy(to, &v, 2);
    return;
  }
  case CONCORD_DTYPE_I32: {
    int32_t v = int32_t(value);
    std::memcpy(to, &v, 4);
    return;
  }
  case CONCORD_DTYPE_I64: {
    int64_t v = int64_t(value);
    std::memcpy(to, &v, 8);
    return;
  }
  default:
    *to = char(uint8_t(value));
  }
}

/// Memory of the heap, or foreign.
class Buffer {
public:
  Buffer(uint64_t bytes, bool foreign) : foreign(foreign) {
    bytes = std::max<uint64_t>(bytes, 1);
    if (foreign)
      at = static_cast<char *>(std::malloc(bytes));
    else {
      void *block = nullptr;
      check(concord_heap_alloc(context, bytes, 0, &block), "heap");
      at = static_cast<char *>(block);
    }
    std::memset(at, 0x5a, bytes);
  }
  ~Buffer() {
    if (foreign)
      std::free(at);
    else
      concord_heap_free(context, at);
  }
  Buffer(const Buffer &) = delete;
  char *at;

private:
  bool foreign;
};

struct Case {
  concord_comm *comm;
  int me, ranks;
  std::vector<int> members; ///< world ranks
  Type type;
  uint64_t count;
  bool foreign, inPlace;
  concord_stream *stream = nullptr;
  std::string text() const {
    return std::string(type.name) + " x " + std::to_string(count) +
           (foreign ? ", foreign" : ", heap") + (inPlace ? ", in place" : "");
  }
};

double reduced(const Case &c, int32_t reduction, uint64_t i) {
  double value = 0;
  for (int r = 0; r < c.ranks; ++r) {
    double next = valueOf(c.members[size_t(r)], i);
    value = r == 0                               ? next
            : reduction == CONCORD_REDUCTION_MAX ? std::max(value, next)
            : reduction == CONCORD_REDUCTION_MIN ? std::min(value, next)
                                                 : value + next;
  }
  return value;
}

void wait(const Case &c, int32_t status, const char *what) {
  check(status, what);
  if (c.stream)
    check(concord_stream_synchronize(c.stream), what);
}

void compare(const Case &c, const char *what, const char *got,
             uint64_t elements, const std::function<double(uint64_t)> &want) {
  std::vector<char> expected(elements * c.type.bytes);
  for (uint64_t i = 0; i < elements; ++i)
    put(c.type, expected.data(), i, want(i));
  for (uint64_t i = 0; i < elements; ++i)
    if (std::memcmp(got + i * c.type.bytes, &expected[i * c.type.bytes],
                    c.type.bytes) != 0)
      wrong(std::string(what) + " of " + c.text() + ": element " +
            std::to_string(i) + " of " + std::to_string(elements) + " is not " +
            std::to_string(want(i)));
}

void everyCollective(const Case &c) {
  uint64_t n = c.count, p = uint64_t(c.ranks), size = c.type.bytes;
  int own = c.members[size_t(c.me)];
  auto fill = [&](char *at, uint64_t elements, int rank) {
    for (uint64_t i = 0; i < elements; ++i)
      put(c.type, at, i, valueOf(rank, i));
  };
  for (int32_t reduction : {CONCORD_REDUCTION_SUM, CONCORD_REDUCTION_MAX}) {
    Buffer in(n * size, c.foreign), out(n * size, c.foreign);
    char *target = c.inPlace ? in.at : out.at;
    fill(in.at, n, own);
    wait(c,
         concord_all_reduce(c.comm, in.at, target, n, c.type.dtype, reduction,
                            c.stream),
         "all_reduce");
    compare(c, "all_reduce", target, n,
            [&](uint64_t i) { return reduced(c, reduction, i); });
  }
  {
    Buffer in(n * size, c.foreign), out(n * p * size, c.foreign);
    char *source = c.inPlace ? out.at + uint64_t(c.me) * n * size : in.at;
    fill(source, n, own);
    wait(c,
         concord_all_gather(c.comm, source, out.at, n, c.type.dtype, c.stream),
         "all_gather");
    compare(c, "all_gather", out.at, n * p, [&](uint64_t i) {
      return valueOf(c.members[size_t(i / n)], i % n);
    });
  }
  {
    Buffer in(n * p * size, c.foreign), out(n * size, c.foreign);
    char *target = c.inPlace ? in.at + uint64_t(c.me) * n * size : out.at;
    fill(in.at, n * p, own);
    wait(c,
         concord_reduce_scatter(c.comm, in.at, target, n, c.type.dtype,
                                CONCORD_REDUCTION_SUM, c.stream),
         "reduce_scatter");
    compare(c, "reduce_scatter", target, n, [&](uint64_t i) {
      return reduced(c, CONCORD_REDUCTION_SUM, uint64_t(c.me) * n + i);
    });
  }
  {
    Buffer in(n * p * size, c.foreign), out(n * p * size, c.foreign);
    char *target = c.inPlace ? in.at : out.at;
    fill(in.at, n * p, own);
    wait(c,
         concord_all_to_all(c.comm, in.at, target, n, c.type.dtype, c.stream),
         "all_to_all");
    compare(c, "all_to_all", target, n * p, [&](uint64_t i) {
      return valueOf(c.members[size_t(i / n)], uint64_t(c.me) * n + i % n);
    });
  }
  for (int root : {0, c.ranks - 1}) {
    int rootRank = c.members[size_t(root)];
    Buffer in(n * p * size, c.foreign), out(n * p * size, c.foreign);
    fill(in.at, n * p, own);
    char *target = c.inPlace ? in.at : out.at;
    wait(c,
         concord_broadcast(c.comm, in.at, target, n, c.type.dtype, root,
                           c.stream),
         "broadcast");
    compare(c, "broadcast", target, n,
            [&](uint64_t i) { return valueOf(rootRank, i); });
    fill(in.at, n * p, own);
    wait(c,
         concord_reduce(c.comm, in.at, target, n, c.type.dtype,
                        CONCORD_REDUCTION_SUM, root, c.stream),
         "reduce");
    if (c.me == root)
      compare(c, "reduce", target, n,
              [&](uint64_t i) { return reduced(c, CONCORD_REDUCTION_SUM, i); });
    fill(in.at, n * p, own);
    wait(c,
         concord_gather(c.comm, in.at, out.at, n, c.type.dtype, root, c.stream),
         "gather");
    if (c.me == root)
      compare(c, "gather", out.at, n * p, [&](uint64_t i) {
        return valueOf(c.members[size_t(i / n)], i % n);
      });
    fill(in.at, n * p, own);
    wait(
        c,
        concord_scatter(c.comm, in.at, out.at, n, c.type.dtype, root, c.stream),
        "scatter");
    compare(c, "scatter", out.at, n, [&](uint64_t i) {
      return valueOf(rootRank, uint64_t(c.me) * n + i);
    });
  }
  if (c.ranks > 1) {
    // A ring without its last pair: rank 0 gets zeros.
    std::vector<int32_t> pairs;
    for (int r = 0; r + 1 < c.ranks; ++r)
      pairs.insert(pairs.end(), {r, r + 1});
    Buffer in(n * size, c.foreign), out(n * size, c.foreign);
    fill(in.at, n, own);
    wait(c,
         concord_permute(c.comm, in.at, out.at, n, c.type.dtype, pairs.data(),
                         uint32_t(c.ranks - 1), c.stream),
         "permute");
    compare(c, "permute", out.at, n, [&](uint64_t i) {
      return c.me ? valueOf(c.members[size_t(c.me - 1)], i) : 0;
    });
  }
  // Uneven sizes: member r has r + 1 parts of what is there for one, and r = 1
  // has nothing.
  std::vector<uint64_t> counts, begins;
  uint64_t total = 0;
  for (int r = 0; r < c.ranks; ++r) {
    counts.push_back(r == 1 ? 0 : n * uint64_t(r + 1) / p);
    begins.push_back(total);
    total += counts.back();
  }
  uint64_t mine = counts[size_t(c.me)];
  auto owner = [&](uint64_t i) {
    int r = 0;
    while (i >= begins[size_t(r)] + counts[size_t(r)])
      ++r;
    return r;
  };
  {
    Buffer in(mine * size, c.foreign), out(total * size, c.foreign);
    fill(in.at, mine, own);
    wait(c,
         concord_all_gather_v(c.comm, in.at, out.at, counts.data(),
                              c.type.dtype, c.stream),
         "all_gather_v");
    compare(c, "all_gather_v", out.at, total, [&](uint64_t i) {
      int r = owner(i);
      return valueOf(c.members[size_t(r)], i - begins[size_t(r)]);
    });
  }
  {
    Buffer in(total * size, c.foreign), out(mine * size, c.foreign);
    fill(in.at, total, own);
    wait(c,
         concord_reduce_scatter_v(c.comm, in.at, out.at, counts.data(),
                                  c.type.dtype, CONCORD_REDUCTION_SUM,
                                  c.stream),
         "reduce_scatter_v");
    compare(c, "reduce_scatter_v", out.at, mine, [&](uint64_t i) {
      return reduced(c, CONCORD_REDUCTION_SUM, begins[size_t(c.me)] + i);
    });
  }
  {
    // To member s from member r: (r + 2 s) parts, some of them none.
    auto between = [&](int r, int s) {
      return (uint64_t(r) + 2 * uint64_t(s)) % 4 * n / 4;
    };
    std::vector<uint64_t> send, receive;
    uint64_t sent = 0, received = 0;
    for (int r = 0; r < c.ranks; ++r) {
      send.push_back(between(c.me, r));
      receive.push_back(between(r, c.me));
      sent += send.back();
      received += receive.back();
    }
    Buffer in(sent * size, c.foreign), out(received * size, c.foreign);
    fill(in.at, sent, own);
    wait(c,
         concord_all_to_all_v(c.comm, in.at, out.at, send.data(),
                              receive.data(), c.type.dtype, c.stream),
         "all_to_all_v");
    compare(c, "all_to_all_v", out.at, received, [&](uint64_t i) {
      int r = 0;
      uint64_t at = 0;
      while (i >= at + receive[size_t(r)])
        at += receive[size_t(r++)];
      uint64_t there = 0;
      for (int s = 0; s < c.me; ++s)
        there += between(r, s);
      return valueOf(c.members[size_t(r)], there + i - at);
    });
  }
  wait(c, concord_barrier(c.comm, c.stream), "barrier");
}

Case caseOf(concord_comm *comm, std::vector<int> members, const Type &type,
            uint64_t count, bool foreign, bool inPlace) {
  Case c{comm,    0,       0,      std::move(members), type, count,
         foreign, inPlace, nullptr};
  check(concord_comm_rank(comm, &c.me, &c.ranks), "rank");
  return c;
}

std::vector<int> everybody() {
  std::vector<int> all;
  for (int r = 0; r < ranks; ++r)
    all.push_back(r);
  return all;
}

void collectives(bool quick) {
  for (const Type &type : kTypes)
    for (uint64_t bytes : {8, 40, 4096, 4104, 100000})
      for (bool foreign : {false, true})
        for (bool inPlace : {false, true}) {
          if (quick &&
              (bytes > 5000 || bytes == 40 || (foreign && type.bytes != 4)))
            continue;
          everyCollective(caseOf(world, everybody(), type,
                                 std::max<uint64_t>(bytes / type.bytes, 1),
                                 foreign, inPlace));
        }
  // Several segments, the last one odd.
  for (uint64_t count : {uint64_t(700'001), uint64_t(3'000'003)})
    if (!quick || count < 1'000'000)
      everyCollective(
          caseOf(world, everybody(), kTypes[0], count, true, false));
  everyCollective(caseOf(world, everybody(), kTypes[0], 0, false, false));
}

/// Host of every rank, numbered.
std::vector<int> hostsOfRanks() {
  std::vector<concord_rank_entry> table(static_cast<size_t>(ranks));
  for (concord_rank_entry &entry : table)
    entry.struct_size = sizeof entry;
  check(concord_context_rank_table(context, table.data(), uint32_t(ranks)),
        "rank table");
  std::vector<int> hosts;
  for (const concord_rank_entry &entry : table) {
    int host = 0;
    while (std::strcmp(table[size_t(host)].host, entry.host) != 0)
      ++host;
    hosts.push_back(host);
  }
  return hosts;
}

/// The form of the last operation.
std::string formOf(concord_comm *comm) {
  char text[800];
  check(concord_comm_last_form(comm, text, sizeof text), "last form");
  const char *begin = std::strstr(text, " B: ");
  const char *end = begin ? std::strstr(begin, " (") : nullptr;
  if (!end)
    wrong(std::string("no form in '") + text + "'");
  return std::string(begin + 4, end);
}

/// Sums of reals depend on the order. It is that of the group where it goes in
/// the headers, or direct; else that of the group within a host, and then that
/// of the form, which is that of the hosts' first members where they go by
/// pairs or are two. All members must have the same bits, in every run.
void bitsOf(concord_comm *comm, const std::vector<int> &order) {
  std::vector<int> hosts = hostsOfRanks();
  std::vector<int> different = hosts;
  std::sort(different.begin(), different.end());
  different.erase(std::unique(different.begin(), different.end()),
                  different.end());
  const size_t numHosts = different.size();
  for (uint64_t n : {3, 700, 50'000, 900'001}) {
    Buffer in(n * 4, false), out(n * 4, false), again(n * 4, true);
    auto real = [](int r, uint64_t i) {
      uint64_t x = (uint64_t(r) + 1) * 0x9e3779b97f4a7c15 + i * 0xff51afd7ed55;
      x ^= x >> 29;
      return float(double(x % 1000003) * 1e-3 - 500.0) * (i % 3 ? 1.0f : 1e-6f);
    };
    for (uint64_t i = 0; i < n; ++i) {
      float v = real(me, i);
      std::memcpy(in.at + 4 * i, &v, 4);
    }
    for (int32_t reduction : {CONCORD_REDUCTION_SUM, CONCORD_REDUCTION_AVG}) {
      for (char *target : {out.at, again.at})
        check(concord_all_reduce(comm, in.at, target, n, CONCORD_DTYPE_F32,
                                 reduction, nullptr),
              "all_reduce");
      std::string form = formOf(comm);
      if (std::memcmp(out.at, again.at, 4 * n) != 0)
        wrong("all_reduce (" + form + "): twice, and not the same bits");
      uint64_t hash = 1469598103934665603;
      for (uint64_t i = 0; i < 4 * n; ++i)
        hash = (hash ^ uint8_t(out.at[i])) * 1099511628211;
      std::vector<uint64_t> hashes(order.size());
      check(concord_all_gather(comm, &hash, hashes.data(), 1, CONCORD_DTYPE_I64,
                               nullptr),
            "all_gather");
      for (uint64_t other : hashes)
        if (other != hash)
          wrong("all_reduce (" + form + "): not the same bits at all ranks");
      bool group = form == "flat" || form == "direct";
      if (!group && form != "pairwise" && numHosts > 2)
        continue;
      std::vector<std::vector<int>> parts;
      for (int r : order) {
        auto same = [&](const std::vector<int> &part) {
          return hosts[size_t(part[0])] == hosts[size_t(r)];
        };
        auto found = group ? parts.begin()
                           : std::find_if(parts.begin(), parts.end(), same);
        if (found == parts.end())
          parts.push_back({r});
        else
          found->push_back(r);
      }
      for (uint64_t i = 0; i < n; ++i) {
        float want = 0, got;
        for (size_t p = 0; p < parts.size(); ++p) {
          float sum = real(parts[p][0], i);
          for (size_t k = 1; k < parts[p].size(); ++k)
            sum += real(parts[p][k], i);
          want = p ? want + sum : sum;
        }
        if (reduction == CONCORD_REDUCTION_AVG)
          want /= float(order.size());
        std::memcpy(&got, out.at + 4 * i, 4);
        if (std::memcmp(&want, &got, 4) != 0)
          wrong("all_reduce (" + form + "): element " + std::to_string(i) +
                " of " + std::to_string(n) +
                " is not the sum in the right order");
      }
    }
  }
}

void bits() {
  std::vector<int> order, mixed;
  for (int r = 0; r < ranks; ++r)
    order.push_back(r);
  bitsOf(world, order);
  // Members of the hosts in turns: even ranks first.
  concord_comm *turns = nullptr;
  check(concord_comm_split(world, 0, (me % 2) * ranks + me, nullptr, &turns),
        "split");
  for (int odd : {0, 1})
    for (int r = odd; r < ranks; r += 2)
      mixed.push_back(r);
  bitsOf(turns, mixed);
  check(concord_barrier(world, nullptr), "barrier");
  check(concord_comm_destroy(turns), "destroy");
}

void messages() {
  for (uint64_t n : {0, 1, 100, 1024, 1025, 262'112, 262'113, 3'000'001}) {
    std::vector<concord_p2p> batch;
    std::vector<std::vector<uint8_t>> out, in;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == me)
        continue;
      out.emplace_back(n + 1);
      in.emplace_back(n + 1);
      for (uint64_t i = 0; i < n; ++i)
        out.back()[i] = uint8_t(me * 31 + peer * 17 + int(i % 251));
      batch.push_back({1, peer, out.back().data(), n, CONCORD_DTYPE_U8});
      batch.push_back({0, peer, in.back().data(), n, CONCORD_DTYPE_U8});
    }
    // The vectors do not move any more, their memory never did.
    check(
        concord_batch_p2p(world, batch.data(), uint32_t(batch.size()), nullptr),
        "batch");
    size_t at = 0;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == me)
        continue;
      for (uint64_t i = 0; i < n; ++i)
        if (in[at][i] != uint8_t(peer * 31 + me * 17 + int(i % 251)))
          wrong("message of " + std::to_string(n) + " bytes from rank " +
                std::to_string(peer) + ": byte " + std::to_string(i));
      ++at;
    }
  }
  // A ring of single calls, and several messages of one pair in order.
  int next = (me + 1) % ranks, last = (me + ranks - 1) % ranks;
  for (uint64_t n : {4, 400'000}) {
    Buffer buffer(n * 4, false), got(n * 4, true);
    for (int round = 0; round < 5; ++round) {
      auto *values = reinterpret_cast<int32_t *>(buffer.at);
      for (uint64_t i = 0; i < n; ++i)
        values[i] = me * 1000 + round + int(i % 7);
      auto send = [&] {
        check(
            concord_send(world, buffer.at, n, CONCORD_DTYPE_I32, next, nullptr),
            "send");
      };
      auto receive = [&] {
        check(concord_recv(world, got.at, n, CONCORD_DTYPE_I32, last, nullptr),
              "recv");
      };
      if (me == 0) {
        send();
        receive();
      } else {
        receive();
        send();
      }
      const auto *results = reinterpret_cast<const int32_t *>(got.at);
      for (uint64_t i = 0; i < n; ++i)
        if (results[i] != last * 1000 + round + int(i % 7))
          wrong("ring, round " + std::to_string(round) + ": element " +
                std::to_string(i));
    }
  }
}

void comms() {
  // Odd and even ranks, so that each has members on both hosts; backwards.
  concord_comm_config config{};
  config.struct_size = sizeof config;
  config.name = "parity";
  config.priority = 1;
  concord_comm *parity = nullptr;
  check(concord_comm_split(world, me % 2, -me, &config, &parity), "split");
  std::vector<int> members;
  for (int r = ranks - 1; r >= 0; --r)
    if (r % 2 == me % 2)
      members.push_back(r);
  for (uint64_t n : {3, 3000, 200'000})
    everyCollective(caseOf(parity, members, kTypes[0], n, false, false));
  // Low priority, with streams, beside high priority.
  config.name = "low";
  config.priority = -1;
  concord_comm *low = nullptr;
  concord_stream *stream = nullptr;
  check(concord_comm_split(world, 0, me, &config, &low), "split");
  check(concord_stream_create(context, -1, &stream), "stream");
  uint64_t n = 500'000;
  Buffer in(n * 4, false), out(n * 4, false);
  for (int round = 0; round < 3; ++round) {
    auto *values = reinterpret_cast<float *>(in.at);
    for (uint64_t i = 0; i < n; ++i)
      values[i] = float(valueOf(me, i + uint64_t(round)));
    check(concord_all_reduce(low, in.at, out.at, n, CONCORD_DTYPE_F32,
                             CONCORD_REDUCTION_SUM, stream),
          "all_reduce on a stream");
    for (int i = 0; i < 5; ++i)
      everyCollective(caseOf(parity, members, kTypes[4], 10, false, false));
    check(concord_stream_synchronize(stream), "synchronize");
    const auto *sums = reinterpret_cast<const float *>(out.at);
    for (uint64_t i = 0; i < n; ++i) {
      int want = 0;
      for (int r = 0; r < ranks; ++r)
        want += valueOf(r, i + uint64_t(round));
      if (sums[i] != float(want))
        wrong("low priority: element " + std::to_string(i));
    }
  }
  Case onStream = caseOf(low, everybody(), kTypes[1], 60'000, true, false);
  onStream.stream = stream;
  everyCollective(onStream);
  check(concord_comm_destroy(low), "destroy");
  // Nobody can join what has met through MPI; all are told, and go on.
  concord_unique_id id{};
  check(concord_unique_id_create(&id), "unique id");
  concord_comm *grown = nullptr;
  if (concord_comm_grow(parity, ranks, &id, &grown) !=
          CONCORD_ERROR_NOT_SUPPORTED ||
      !std::strstr(concord_last_error(), "members on several hosts"))
    wrong(std::string("grow: ") + concord_last_error());
  everyCollective(caseOf(parity, members, kTypes[0], 3, false, false));
  check(concord_comm_destroy(parity), "destroy");
  // Many, one after the other: nothing is used up.
  for (int i = 0; i < 100; ++i) {
    concord_comm *made = nullptr;
    check(concord_comm_split(world, me % 2, me, nullptr, &made), "split");
    double value = 1, sum = 0;
    check(concord_all_reduce(made, &value, &sum, 1, CONCORD_DTYPE_F64,
                             CONCORD_REDUCTION_SUM, nullptr),
          "all_reduce");
    if (sum != double((ranks + (me % 2 == 0)) / 2))
      wrong("a sum of ones is " + std::to_string(sum));
    check(concord_comm_destroy(made), "destroy");
  }
  // Within the host nothing has changed.
  std::vector<int32_t> here;
  std::vector<concord_rank_entry> table(static_cast<size_t>(ranks));
  for (concord_rank_entry &entry : table)
    entry.struct_size = sizeof entry;
  check(concord_context_rank_table(context, table.data(), uint32_t(ranks)),
        "rank table");
  std::vector<int> hereRanks;
  for (int r = 0; r < ranks; ++r)
    if (std::strcmp(table[size_t(r)].host, table[size_t(me)].host) == 0) {
      here.push_back(r);
      hereRanks.push_back(r);
    }
  concord_comm *local = nullptr;
  check(concord_comm_create_group(context, here.data(), uint32_t(here.size()),
                                  nullptr, &local),
        "group");
  everyCollective(caseOf(local, hereRanks, kTypes[0], 50'000, false, false));
  char form[400];
  check(concord_comm_last_form(local, form, sizeof form), "form");
  if (std::strstr(form, "hosts"))
    wrong(std::string("within a host: ") + form);
  check(concord_barrier(world, nullptr), "barrier");
  check(concord_comm_destroy(local), "destroy");
}

void allocations() {
  uint64_t n = 200'000;
  Buffer in(n * 4, true), out(n * 4, true);
  std::vector<concord_comm *> all = {world};
  auto step = [&] {
    check(concord_all_reduce(world, in.at, out.at, n, CONCORD_DTYPE_F32,
                             CONCORD_REDUCTION_SUM, nullptr),
          "all_reduce");
    check(concord_all_to_all(world, in.at, out.at, n / uint64_t(ranks),
                             CONCORD_DTYPE_F32, nullptr),
          "all_to_all");
    check(concord_barrier(world, nullptr), "barrier");
  };
  std::memset(in.at, 0, n * 4);
  for (int i = 0; i < 20; ++i)
    step();
  // The MPI library has memory of its own; what grows without end shows.
  auto used = [] { return ::mallinfo2().uordblks; };
  size_t before = used();
  for (int i = 0; i < 200; ++i)
    step();
  size_t after = used();
  if (after > before + 256 * 1024)
    wrong("200 steps have allocated " + std::to_string(after - before) +
          " bytes");
}

void form(const std::string &kind, uint64_t bytes, const std::string &name) {
  uint64_t n = bytes / 4;
  Buffer in(bytes, false), out(bytes * uint64_t(ranks), false);
  int32_t type = CONCORD_DTYPE_F32, sum = CONCORD_REDUCTION_SUM;
  check(kind == "all_reduce"
            ? concord_all_reduce(world, in.at, out.at, n, type, sum, nullptr)
        : kind == "all_gather"
            ? concord_all_gather(world, in.at, out.at, n, type, nullptr)
        : kind == "broadcast"
            ? concord_broadcast(world, in.at, out.at, n, type, 0, nullptr)
            : concord_reduce_scatter(world, in.at, out.at, n / uint64_t(ranks),
                                     type, sum, nullptr),
        kind.c_str());
  char text[800];
  check(concord_comm_last_form(world, text, sizeof text), "last form");
  if (me == 0)
    std::printf("%s\n", text);
  if (formOf(world) != name)
    wrong(std::string("expected ") + name + ": " + text);
}

void printTable() {
  std::vector<concord_rank_entry> table(static_cast<size_t>(ranks));
  for (concord_rank_entry &entry : table)
    entry.struct_size = sizeof entry;
  check(concord_context_rank_table(context, table.data(), uint32_t(ranks)),
        "rank table");
  if (me == 0)
    for (const concord_rank_entry &entry : table)
      std::printf("rank %d on %s\n", entry.rank, entry.host);
}

} // namespace

int concord::hosts::runRank(int argc, char **argv,
                            const concord_context_config &config) {
  std::string what = argc > 1 ? argv[1] : "";
  if (concord_context_create(&config, &context) != CONCORD_OK) {
    std::fprintf(stderr, "hosts-rank: %s\n", concord_last_error());
    return 3;
  }
  check(concord_context_rank(context, &me, &ranks), "rank");
  check(concord_comm_world(context, &world), "world");
  if (what == "collectives")
    collectives(argc > 2);
  else if (what == "bits")
    bits();
  else if (what == "messages")
    messages();
  else if (what == "comms")
    comms();
  else if (what == "allocations")
    allocations();
  else if (what == "mismatch")
    mismatch();
  else if (what == "death")
    death(std::atoi(argv[2]), argc > 3 ? argv[3] : "");
  else if (what == "stopped")
    stopped(std::atoi(argv[2]));
  else if (what == "form")
    form(argv[2], std::strtoull(argv[3], nullptr, 10), argv[4]);
  else if (what == "abort")
    aborting();
  else if (what == "revoke")
    revoke();
  else if (what == "early")
    early();
  else if (what == "overtaken")
    overtaken();
  else if (what == "lost")
    lost();
  else if (what == "fused")
    fused();
  else if (what == "table")
    printTable();
  else
    wrong("no test '" + what + "'");
  if (int32_t status = concord_context_finalize(context)) {
    std::fprintf(stderr, "hosts-rank: finalize: %s\n", concord_last_error());
    return int(status);
  }
  if (me == 0)
    std::printf("%s: ok\n", what.c_str());
  return 0;
}
