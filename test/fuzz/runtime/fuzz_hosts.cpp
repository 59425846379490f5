//===- fuzz_hosts.cpp - Fuzz target: the rank of another host -------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// This process is rank 0 of two, each on a host of its own. Rank 1 is made up:
// a transport module that hands back what rank 0 has sent, and a thread that
// speaks the mesh's packets. The input says what of that is changed: the
// records of bring-up, packets of the mesh, headers and messages between hosts.
// Every call must end in a result or an error, in bounded time.
//
// Input: byte 0 the operation, byte 1 what is changed (Changed), then changes,
// each an offset (2 bytes), a length (1 byte) and so many bytes.
//
//===----------------------------------------------------------------------===//

#include "../Fuzz.h"
#include "concord/concord.h"
#include "engine/Span.h"
#include "transport/Mesh.h"
#include "transport/Transport.h"

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace concord;
using namespace concord::rt;

namespace {

enum Changed : unsigned {
  kVersions = 1,
  kRecords = 2,
  kFacts = 4,
  kHello = 8,
  kNotices = 16,
  kHeaders = 32,
  kMessages = 64,
  kSilence = 128, ///< the tag is never told
};

[[noreturn]] void wrong(const char *what) {
  std::fprintf(stderr, "fuzz_hosts: %s: %s\n", what, concord_last_error());
  std::abort();
}

/// The other rank. One at a time.
class Other {
public:
  Other(const uint8_t *data, size_t size)
      : changed(data[1]), changes(data + 2), left(size - 2) {}
  ~Other() { leave(); }

  /// Take the next change and make it.
  void change(unsigned what, void *target, size_t bytes) {
    std::lock_guard lock(mutex);
    if (!(changed & what) || left < 3)
      return;
    size_t at = (size_t(changes[0]) | size_t(changes[1]) << 8) % bytes;
    size_t n = std::min({size_t(changes[2]), left - 3, bytes - at});
    std::memcpy(static_cast<char *>(target) + at, changes + 3, n);
    changes += 3 + n;
    left -= 3 + n;
  }

  //===--------------------------------------------------------------------===//
  // As a transport module
  //===--------------------------------------------------------------------===//

  void exchange(const void *mine, char *all, size_t bytes) {
    std::memcpy(all, mine, bytes);
    std::memcpy(all + bytes, mine, bytes);
    char *theirs = all + bytes;
    switch (stage++) {
    case 0:
      change(kVersions, theirs, bytes);
      break;
    case 1:
      // Identity and name of the host come first (transport/Hosts.cpp).
      std::strcpy(theirs, "given b");
      std::strcpy(theirs + 256, "b");
      std::memcpy(&address, static_cast<const char *>(mine) + 256 + 64 + 48,
                  sizeof address);
      change(kRecords, theirs, bytes);
      break;
    default:
      change(kFacts, theirs, bytes);
      if (!caller.joinable())
        caller = std::thread([this] { call(); });
    }
  }
  void send(const void *data, size_t bytes) {
    sent.assign(static_cast<const char *>(data), bytes);
  }
  /// What rank 0 has sent last comes back, as long as it fits.
  size_t receive(char *data, size_t bytes) {
    size_t n = std::min(bytes, sent.size());
    std::memcpy(data, sent.data(), n);
    // For a header there is room for any, and the own one lies before it.
    unsigned what =
        bytes > headBytes(2) / 2 && bytes < headBytes(2) ? kHeaders : kMessages;
    change(what, data, std::min<size_t>(bytes, 64));
    uint8_t shorter = 0;
    change(what, &shorter, 1);
    return n - std::min<size_t>(n, shorter);
  }

  //===--------------------------------------------------------------------===//
  // On the mesh
  //===--------------------------------------------------------------------===//

  void leave() {
    leaving.store(true);
    if (caller.joinable())
      caller.join();
  }

private:
  bool put(int fd, const Notice &notice) {
    return ::send(fd, &notice, sizeof notice, MSG_NOSIGNAL) ==
           ssize_t(sizeof notice);
  }
  bool get(int fd, Notice &notice) {
    auto *at = reinterpret_cast<char *>(&notice);
    for (size_t have = 0; have < sizeof notice;) {
      pollfd wait{fd, POLLIN, 0};
      if (leaving.load())
        return false;
      if (::poll(&wait, 1, 5) <= 0)
        continue;
      ssize_t n = ::recv(fd, at + have, sizeof notice - have, MSG_DONTWAIT);
      if (n <= 0)
        return false;
      have += size_t(n);
    }
    return true;
  }
  void call() {
    int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons(uint16_t(address.port));
    if (::connect(fd, reinterpret_cast<sockaddr *>(&to), sizeof to) == 0)
      talk(fd);
    ::close(fd);
  }
  void talk(int fd) {
    Notice hello, notice;
    hello.rank = 1;
    hello.value = 0;
    std::memcpy(hello.secret, address.secret, sizeof hello.secret);
    change(kHello, &hello, sizeof hello);
    if (!put(fd, hello) || !get(fd, notice))
      return;
    hello.kind = Notice::Kind::Welcome;
    change(kHello, &hello, sizeof hello);
    if (!put(fd, hello))
      return;
    while (get(fd, notice)) {
      notice.rank = 1;
      if (notice.kind != Notice::Kind::Tag || !(changed & kSilence))
        put(fd, notice);
      // A few of its own behind every packet.
      for (int i = 0; i < 4 && (changed & kNotices); ++i) {
        Notice own = notice;
        uint8_t kind = 0;
        change(kNotices, &kind, 1);
        own.kind = Notice::Kind(kind % 10);
        change(kNotices, &own, sizeof own);
        put(fd, own);
      }
    }
  }

  const unsigned changed;
  const uint8_t *changes;
  size_t left;
  std::mutex mutex;
  int stage = 0;
  MeshAddress address;
  std::string sent;
  std::thread caller;
  std::atomic<bool> leaving{false};
};

Other *other = nullptr;

/// A receive in flight, as a request: its number here + 1.
struct Receive {
  char *data;
  size_t bytes;
};
std::vector<Receive> receives;

int32_t openModule(int32_t *rank, int32_t *world, char *words, uint64_t bytes) {
  *rank = 0;
  *world = 2;
  std::snprintf(words, bytes, "made up");
  return 0;
}
int32_t exchange(const void *mine, void *all, uint64_t bytes,
                 concord_transport_request *request) {
  other->exchange(mine, static_cast<char *>(all), bytes);
  *request = 0;
  return 0;
}
int32_t sendBytes(int32_t rank, uint32_t tag, const void *data, uint64_t bytes,
                  int32_t synchronous, concord_transport_request *request) {
  other->send(data, bytes);
  *request = 0;
  return 0;
}
int32_t receiveBytes(int32_t rank, uint32_t tag, void *data, uint64_t bytes,
                     concord_transport_request *request) {
  receives.push_back({static_cast<char *>(data), bytes});
  *request = receives.size();
  return 0;
}
int32_t test(concord_transport_request *request, uint64_t *bytes) {
  if (*request) {
    const Receive &receive = receives.at(*request - 1);
    uint64_t n = other->receive(receive.data, receive.bytes);
    if (bytes)
      *bytes = n;
    *request = 0;
  }
  return CONCORD_TRANSPORT_DONE;
}
void abandon(concord_transport_request *request, int32_t receiving) {
  *request = 0;
}
const char *errorWords() { return "none"; }
uint32_t maxTag() { return 1 << 20; }
void closeModule(int32_t orderly) {}

/// The module is a file of its own beside this program, which takes what is
/// here.
void offerModule() {
  static const concord_transport kModule = {CONCORD_TRANSPORT_ABI,
                                            sizeof(concord_transport),
                                            openModule,
                                            exchange,
                                            sendBytes,
                                            receiveBytes,
                                            test,
                                            abandon,
                                            errorWords,
                                            maxTag,
                                            closeModule};
  void *file = ::dlopen(FUZZ_TRANSPORT, RTLD_NOW | RTLD_GLOBAL);
  auto *slot = static_cast<const concord_transport **>(
      file ? ::dlsym(file, "fuzz_transport") : nullptr);
  if (!slot) {
    std::fprintf(stderr, "fuzz_hosts: %s\n", ::dlerror());
    std::abort();
  }
  *slot = &kModule;
  for (const auto &[name, value] : {std::pair{"CONCORD_LAUNCHER", "openmpi"},
                                    {"OMPI_COMM_WORLD_RANK", "0"},
                                    {"OMPI_COMM_WORLD_SIZE", "2"},
                                    {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                    {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                    {"PMIX_NAMESPACE", "fuzz"},
                                    {"CONCORD_HOST_ID", "a"},
                                    {"CONCORD_HEAP_BYTES", "64M"},
                                    {"CONCORD_HANG_REPORT", "0"},
                                    {"CONCORD_LOG", "off"},
                                    {"CONCORD_CONNECT_TIMEOUT", "0.2"}})
    ::setenv(name, value, 1);
}

void collective(concord_context *context, unsigned choice) {
  concord_comm *world;
  if (concord_comm_world(context, &world) != CONCORD_OK)
    wrong("world");
  void *in, *out;
  if (concord_heap_alloc(context, 1 << 16, 0, &in) != CONCORD_OK ||
      concord_heap_alloc(context, 1 << 17, 0, &out) != CONCORD_OK)
    wrong("heap");
  const uint64_t count = choice & 16 ? 16 : 4096;
  const int32_t f32 = CONCORD_DTYPE_F32, sum = CONCORD_REDUCTION_SUM;
  const uint64_t counts[2] = {100, 3000};
  switch (choice % 10) {
  case 0:
    concord_all_reduce(world, in, out, count, f32, sum, nullptr);
    break;
  case 1:
    concord_all_gather(world, in, out, count, f32, nullptr);
    break;
  case 2:
    concord_reduce_scatter(world, out, in, count, f32, sum, nullptr);
    break;
  case 3:
    concord_all_to_all(world, in, out, count / 2, f32, nullptr);
    break;
  case 4:
    concord_broadcast(world, in, out, count, f32, 1, nullptr);
    break;
  case 5:
    concord_all_to_all_v(world, in, out, counts, counts, f32, nullptr);
    break;
  case 6:
    concord_all_gather_v(world, in, out, counts, f32, nullptr);
    break;
  case 7:
    concord_reduce(world, in, out, count, f32, sum, 0, nullptr);
    break;
  default:
    // Its own message comes back.
    concord_send(world, in, count, f32, 1, nullptr);
    concord_recv(world, out, count, f32, 1, nullptr);
  }
}

} // namespace

std::vector<std::string> fuzz::seeds() {
  std::vector<std::string> all;
  // Nothing is changed; then each kind of change, of a byte, for each
  // operation.
  for (int choice = 0; choice < 32; ++choice)
    for (int bit = -1; bit < 8; ++bit) {
      std::string seed = {char(choice), char(bit < 0 ? 0 : 1 << bit)};
      for (int i = 0; i < 12; ++i)
        seed += {char(8 * (i + choice)), 0, 1, char(1 + i)};
      all.push_back(seed);
    }
  return all;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static const bool offered = (offerModule(), true);
  if (!offered || size < 2)
    return 0;
  Other made(data, size);
  other = &made;
  receives.clear();
  concord_context_config config{};
  config.struct_size = sizeof config;
  config.timeout_seconds = 0.05;
  concord_context *context = nullptr;
  if (concord_context_create(&config, &context) == CONCORD_OK) {
    fuzz::accept();
    for (int i = 0; i < 2; ++i)
      collective(context, data[0]);
    if (concord_context_finalize(context) != CONCORD_OK)
      wrong("finalize");
  } else if (size >= 2 && data[1] == 0) {
    wrong("nothing was changed");
  } else {
    // Refused, as it should be where bring-up was changed.
    fuzz::accept();
  }
  made.leave();
  other = nullptr;
  return 0;
}
