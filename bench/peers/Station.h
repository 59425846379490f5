//===- Station.h - One rank of a team under measurement ---------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The measuring side of comm-bench. A team is one library's set of ranks:
// Concord's, or a peer's. Every rank connects to the driver (comm-bench) over a
// Unix socket and sleeps there between commands, so that teams can take turns
// within one run without disturbing each other. Concord and its peers run this
// same code: the same buffers, rotation, data, loop, clock and checks.
//
// Self-contained C++17: the peers are compiled where their libraries are, by
// comm-bench itself, against this file alone.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_BENCH_PEERS_STATION_H
#define CONCORD_BENCH_PEERS_STATION_H

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <type_traits>
#include <unistd.h>
#include <vector>

namespace concord {
namespace bench {

// The numbers are those of concord.h, which comm-bench asserts.
enum Kind : int32_t {
  kAllReduce = 1,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReduce,
  kGather,
  kScatter,
  kPermute,
  kSendRecv, ///< by a send to the next rank and a receive from the former one
  kBarrier = 12
};
enum Type : int32_t {
  kF32 = 1,
  kF64,
  kF16,
  kBF16,
  kI8,
  kI16,
  kI32,
  kI64,
  kU8,
  kU16,
  kU32,
  kU64
};
enum Reduction : int32_t { kNone, kSum, kProd, kMin, kMax, kAvg, kAnd, kOr };

struct Call {
  int32_t kind = 0, type = 0, reduction = 0, root = 0;
  uint64_t count = 0; ///< elements, as in the call
};

/// A library under measurement.
class Backend {
public:
  virtual ~Backend() = default;
  /// Within the group of a split, and in the whole team.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual int worldRank() const { return rank(); }
  virtual int worldSize() const { return size(); }
  /// Name and version, for the head of the table.
  virtual std::string version() const = 0;
  virtual char *allocate(uint64_t bytes) = 0;
  /// False when the library has no such operation or type.
  virtual bool supports(const Call &call) const = 0;
  virtual void run(const Call &call, const char *in, char *out) = 0;
  /// Of the whole team.
  virtual void barrier() = 0;
  /// Messages between two ranks of the team: half of what a message and its
  /// answer take, us.
  virtual std::vector<double> pair(int, int, uint64_t, uint64_t) { return {}; }
  /// Further commands of a backend's own; the reply's numbers.
  virtual std::vector<double> special(uint32_t, const Call &,
                                      const std::vector<uint64_t> &) {
    return {};
  }
};

enum Verb : uint32_t {
  kPrepare = 1,
  kBatch,
  kSingles,
  kCheck,
  kQuit,
  kSpecial,
  kMessages ///< arguments: two ranks, bytes, iterations (Backend::pair)
};

/// Special commands of a peer of bench_fuse (onednn.cpp).
enum PairCommand : uint32_t {
  kPairMake = 1, ///< arguments: m, n, k, groups; numbers: the relative error
  kPairTurn      ///< arguments: steps; numbers: the time of each, us
};

struct Command {
  uint32_t verb = 0;
  uint32_t inPlace = 0;
  Call call;
  uint64_t inBytes = 0, outBytes = 0; ///< of one operation
  uint64_t iterations = 0, warmup = 0;
  uint64_t arguments[4] = {};
};

struct Hello {
  uint64_t magic, token;
  uint32_t team, rank;
  char version[112];
};
constexpr uint64_t kMagic = 0x31484342434e4f43; // "CONCBCH1"

struct Reply {
  int64_t status = 0; ///< wrong elements, or -1: not supported
  uint64_t numbers = 0;
};

/// Where a rank finds its driver, from the command line:
/// NAME TOKEN TEAM CAPACITY ROTATE SPLIT
struct Address {
  std::string name; ///< empty: the driver is in this process or reaches it
  uint64_t token = 0, capacity = 0;
  uint32_t team = 0;
  bool rotate = true;
  std::string split; ///< "MOD 2" or like it; empty: one group of all
  static constexpr int kArguments = 6;
  void parse(char **argv) {
    name = argv[0];
    token = std::strtoull(argv[1], nullptr, 16);
    team = uint32_t(std::atoi(argv[2]));
    capacity = std::strtoull(argv[3], nullptr, 10);
    rotate = std::atoi(argv[4]) != 0;
    split = std::strcmp(argv[5], "-") == 0 ? "" : argv[5];
  }
};

/// The group of a rank: "MOD n" rank % n, "DIV n" rank / n, "AND n" rank & n,
/// "OR n" rank | n. False when the text is none of these.
inline bool splitColor(const std::string &text, int rank, int &color) {
  color = 0;
  if (text.empty())
    return true;
  size_t space = text.find(' ');
  if (space == std::string::npos)
    return false;
  std::string how = text.substr(0, space);
  char *end = nullptr;
  long n = std::strtol(text.c_str() + space + 1, &end, 0);
  if (end == text.c_str() + space + 1 || *end || n < 0 || n > 1 << 20)
    return false;
  if (how == "MOD" && n > 0)
    color = int(rank % n);
  else if (how == "DIV" && n > 0)
    color = int(rank / n);
  else if (how == "AND")
    color = int(rank & n);
  else if (how == "OR")
    color = int(rank | n);
  else
    return false;
  return true;
}

inline double microseconds() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e6 + double(t.tv_nsec) * 1e-3;
}

inline uint64_t typeSize(int32_t type) {
  static const uint8_t kSizes[] = {0, 4, 8, 2, 2, 1, 2, 4, 8, 1, 2, 4, 8};
  return type >= 0 && type <= kU64 ? kSizes[type] : 0;
}

inline bool wideInput(int32_t kind) {
  return kind == kReduceScatter || kind == kAllToAll || kind == kScatter;
}
inline bool wideOutput(int32_t kind) {
  return kind == kAllGather || kind == kAllToAll || kind == kGather;
}

/// Whether one member gives or takes what all others do not.
inline bool isRooted(int32_t kind) {
  return kind == kBroadcast || kind == kReduce || kind == kGather ||
         kind == kScatter;
}

/// Input element i of rank r: a small integer, never zero.
inline int valueOf(int rank, uint64_t i) {
  return 1 + int((uint64_t(rank) + i) % 3);
}

template <typename Each> void withType(int32_t type, Each each) {
  switch (type) {
  case kF32:
    return each(float());
  case kF64:
    return each(double());
  case kI8:
    return each(int8_t());
  case kU8:
    return each(uint8_t());
  case kI16:
    return each(int16_t());
  case kU16:
    return each(uint16_t());
  case kI32:
    return each(int32_t());
  case kU32:
    return each(uint32_t());
  case kI64:
    return each(int64_t());
  case kU64:
    return each(uint64_t());
  default:
    return;
  }
}

/// The bits of a narrow float whose value is a small number.
inline uint16_t narrowBits(int32_t type, double number) {
  float value = float(number);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  if (type == kBF16)
    return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  // f16: rebias and round to nearest even; the numbers here are normal.
  uint32_t exponent = (bits >> 23 & 255) - 112;
  uint32_t mantissa = bits & 0x7fffff;
  uint32_t half = exponent << 10 | mantissa >> 13;
  uint32_t rest = mantissa & 0x1fff;
  half += rest > 0x1000 || (rest == 0x1000 && (half & 1));
  return uint16_t(half | (bits >> 16 & 0x8000));
}

/// Write elements first, first + 1, ... of a rank's data.
inline void fill(char *at, uint64_t elements, int32_t type, int rank,
                 uint64_t first) {
  if (type == kF16 || type == kBF16) {
    for (uint64_t i = 0; i < elements; ++i) {
      uint16_t bits = narrowBits(type, valueOf(rank, first + i));
      std::memcpy(at + 2 * i, &bits, 2);
    }
    return;
  }
  withType(type, [&](auto zero) {
    auto *values = reinterpret_cast<decltype(zero) *>(at);
    for (uint64_t i = 0; i < elements; ++i)
      values[i] = decltype(zero)(valueOf(rank, first + i));
  });
}

/// What element i of `me`'s output must be, when every input begins with
/// element `first` of its rank's data.
inline double expectedElement(const Call &call, int me, int ranks,
                              uint64_t first, uint64_t i) {
  uint64_t count = call.count;
  uint64_t chunk = count ? i / count : 0, within = count ? i % count : 0;
  switch (call.kind) {
  case kAllGather:
  case kGather:
    return valueOf(int(chunk), first + within);
  case kAllToAll:
    return valueOf(int(chunk), first + uint64_t(me) * count + within);
  case kBroadcast:
    return valueOf(call.root, first + i);
  case kScatter:
    return valueOf(call.root, first + uint64_t(me) * count + i);
  case kPermute:
  case kSendRecv:
    return valueOf((me + ranks - 1) % ranks, first + i);
  default:
    break;
  }
  if (call.kind == kReduceScatter)
    i += uint64_t(me) * count;
  double result = valueOf(0, first + i);
  for (int r = 1; r < ranks; ++r) {
    double next = valueOf(r, first + i);
    switch (call.reduction) {
    case kProd:
      result *= next;
      break;
    case kMin:
      result = std::min(result, next);
      break;
    case kMax:
      result = std::max(result, next);
      break;
    case kAnd:
      result = double(int64_t(result) & int64_t(next));
      break;
    case kOr:
      result = double(int64_t(result) | int64_t(next));
      break;
    default:
      result += next;
    }
  }
  return call.reduction == kAvg ? result / ranks : result;
}

inline int64_t countWrong(const Call &call, const char *out, int me, int ranks,
                          uint64_t first) {
  if ((call.kind == kReduce || call.kind == kGather) && me != call.root)
    return 0;
  uint64_t elements = call.count;
  if (wideOutput(call.kind))
    elements *= uint64_t(ranks);
  int64_t wrong = 0;
  if (call.type == kF16 || call.type == kBF16) {
    for (uint64_t i = 0; i < elements; ++i) {
      uint16_t bits;
      std::memcpy(&bits, out + 2 * i, 2);
      wrong += bits != narrowBits(call.type,
                                  expectedElement(call, me, ranks, first, i));
    }
    return wrong;
  }
  withType(call.type, [&](auto zero) {
    using T = decltype(zero);
    const auto *values = reinterpret_cast<const T *>(out);
    // The expectation repeats after three elements, but for chunk boundaries.
    for (uint64_t i = 0; i < elements; ++i) {
      double expected = expectedElement(call, me, ranks, first, i);
      T value = std::is_integral_v<T> ? T(int64_t(expected)) : T(expected);
      double difference = double(values[i]) - double(value);
      wrong += difference > 1e-6 * double(value) ||
               difference < -1e-6 * double(value);
    }
  });
  return wrong;
}

class Station {
public:
  Station(Backend &backend, const Address &address)
      : backend(backend), address(address), me(backend.rank()),
        ranks(backend.size()) {
    pin();
    input = backend.allocate(address.capacity);
    output = backend.allocate(address.capacity);
    std::memset(input, 0, address.capacity);
    std::memset(output, 0, address.capacity);
  }

  /// Serve until told to quit. The exit code.
  int serve() {
    if (!connect())
      return 1;
    Command command;
    while (receive(&command, sizeof command)) {
      if (command.verb == kQuit)
        return 0;
      std::vector<double> numbers;
      Reply reply = obey(command, numbers);
      if (!send(&reply, sizeof reply) ||
          !send(numbers.data(), numbers.size() * sizeof(double)))
        return 1;
    }
    return 1; // the driver is gone
  }

  /// Do what is not kQuit.
  Reply obey(const Command &command, std::vector<double> &numbers) {
    Reply reply;
    if (command.verb == kMessages) {
      numbers =
          backend.pair(int(command.arguments[0]), int(command.arguments[1]),
                       command.arguments[2], command.arguments[3]);
    } else if (command.verb == kSpecial) {
      numbers = backend.special(
          command.inPlace, command.call,
          std::vector<uint64_t>(command.arguments, command.arguments + 4));
    } else if (!backend.supports(command.call)) {
      reply.status = -1;
    } else {
      layOut(command);
      reply.status = execute(command, numbers);
    }
    reply.numbers = numbers.size();
    return reply;
  }

private:
  void pin() {
    cpu_set_t allowed, own;
    // Where a launcher has started the ranks, placing them is its business.
    if (address.name.empty() ||
        ::sched_getaffinity(0, sizeof allowed, &allowed) != 0 ||
        CPU_COUNT(&allowed) < backend.worldSize())
      return;
    int wanted = backend.worldRank();
    CPU_ZERO(&own);
    for (int core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &allowed) && wanted-- == 0)
        CPU_SET(core, &own);
    ::sched_setaffinity(0, sizeof own, &own);
  }

  bool connect() {
    socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    if (socket < 0 || address.name.size() + 1 >= sizeof name.sun_path)
      return false;
    // A name without a file: it ends with the driver.
    std::memcpy(name.sun_path + 1, address.name.data(), address.name.size());
    if (::connect(socket, reinterpret_cast<sockaddr *>(&name),
                  socklen_t(offsetof(sockaddr_un, sun_path) + 1 +
                            address.name.size())) != 0) {
      std::perror("bench rank: connect to comm-bench");
      return false;
    }
    Hello hello{};
    hello.magic = kMagic;
    hello.token = address.token;
    hello.team = address.team;
    hello.rank = uint32_t(backend.worldRank());
    std::string version = backend.version();
    std::strncpy(hello.version, version.c_str(), sizeof hello.version - 1);
    return send(&hello, sizeof hello);
  }

  bool receive(void *data, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
      ssize_t n = ::read(socket, static_cast<char *>(data) + at, bytes - at);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return false;
      at += size_t(n);
    }
    return true;
  }
  bool send(const void *data, size_t bytes) {
    for (size_t at = 0; at < bytes;) {
      ssize_t n =
          ::write(socket, static_cast<const char *>(data) + at, bytes - at);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return false;
      at += size_t(n);
    }
    return true;
  }

  void layOut(const Command &command) {
    uint64_t whole = std::max(command.inBytes, command.outBytes);
    pitch = std::max<uint64_t>((whole + 63) / 64 * 64, 64);
    slots =
        address.rotate ? std::max<uint64_t>(address.capacity / pitch, 1) : 1;
    uint64_t size = typeSize(command.call.type);
    inShift = outShift = 0;
    uint64_t own = uint64_t(me) * command.call.count * size;
    if (command.inPlace) {
      int32_t kind = command.call.kind;
      if (kind == kAllGather || kind == kGather)
        inShift = own;
      if (kind == kReduceScatter || kind == kScatter)
        outShift = own;
    }
    base = command.inPlace ? output : input;
    turn %= slots;
  }
  const char *in(uint64_t slot) const { return base + slot * pitch + inShift; }
  char *out(uint64_t slot) const { return output + slot * pitch + outShift; }
  uint64_t next() { return turn = (turn + 1) % slots; }

  /// So that a result that was not written cannot be taken for a right one.
  void poison(uint64_t slot, uint64_t bytes) {
    std::memset(out(slot), 0xa5, bytes);
  }

  /// Fill every input with data when its type is new.
  void refill(const Command &command) {
    uint64_t size = typeSize(command.call.type);
    if (filled != command.call.type) {
      fill(input, address.capacity / size, command.call.type, me, 0);
      filled = command.call.type;
    }
  }

  int64_t execute(const Command &command, std::vector<double> &numbers) {
    const Call &call = command.call;
    uint64_t size = typeSize(call.type);
    if (size)
      refill(command);
    switch (command.verb) {
    case kCheck: {
      // One operation on the slot that is next in turn.
      uint64_t slot = next();
      uint64_t first = size ? slot * pitch / size : 0;
      if (command.inPlace && size)
        fill(const_cast<char *>(in(slot)), command.inBytes / size, call.type,
             me, first);
      else
        poison(slot, command.outBytes);
      backend.barrier();
      backend.run(call, in(slot), out(slot));
      return size ? countWrong(call, out(slot), me, ranks, first) : 0;
    }
    case kBatch: {
      bool verify = command.arguments[0] != 0 && size && !command.inPlace;
      if (verify)
        poison((turn + command.warmup + command.iterations) % slots,
               command.outBytes);
      for (uint64_t i = 0; i < command.warmup; ++i) {
        uint64_t slot = next();
        backend.run(call, in(slot), out(slot));
      }
      backend.barrier();
      uint64_t slot = turn;
      double began = microseconds();
      for (uint64_t i = 0; i < command.iterations; ++i) {
        slot = next();
        backend.run(call, in(slot), out(slot));
      }
      numbers.push_back((microseconds() - began) / double(command.iterations));
      return verify
                 ? countWrong(call, out(slot), me, ranks, slot * pitch / size)
                 : 0;
    }
    case kSingles: {
      numbers.reserve(2 * command.iterations);
      for (uint64_t i = 0; i < command.warmup; ++i) {
        uint64_t slot = next();
        backend.run(call, in(slot), out(slot));
      }
      // Begin and duration of each operation; the clock is the host's.
      for (uint64_t i = 0; i < command.iterations; ++i) {
        uint64_t slot = next();
        double began = microseconds();
        backend.run(call, in(slot), out(slot));
        double ended = microseconds();
        numbers.push_back(began);
        numbers.push_back(ended - began);
      }
      return 0;
    }
    default:
      return -1;
    }
  }

  Backend &backend;
  Address address;
  int me, ranks;
  int socket = -1;
  char *input = nullptr, *output = nullptr, *base = nullptr;
  uint64_t pitch = 64, slots = 1, turn = 0, inShift = 0, outShift = 0;
  int32_t filled = -1;
};

} // namespace bench
} // namespace concord

#endif // CONCORD_BENCH_PEERS_STATION_H
