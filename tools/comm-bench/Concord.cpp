//===- Concord.cpp - Concord's own team -----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Concord behind the interface that the peers implement, too, and beside the
// operations: the bandwidth of memory and the latency of a flag, from which the
// bound of every row is made; high priority under a low-priority stream; all
// pairs of ranks.
//
//===----------------------------------------------------------------------===//

#include "Concord.h"
#include "IssuePath.h"
#include "Limits.h"
#include "concord/kernel.h"

#include <atomic>
#include <cmath>
#include <sys/mman.h>
#include <thread>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace concord::bench;

static_assert(int(kAllReduce) == CONCORD_KIND_ALL_REDUCE &&
              int(kPermute) == CONCORD_KIND_PERMUTE &&
              int(kSendRecv) == CONCORD_KIND_SEND &&
              int(kBarrier) == CONCORD_KIND_BARRIER);
static_assert(int(kF32) == CONCORD_DTYPE_F32 && int(kU64) == CONCORD_DTYPE_U64);
static_assert(int(kSum) == CONCORD_REDUCTION_SUM &&
              int(kOr) == CONCORD_REDUCTION_OR);

const char *const concord::bench::kMethodNames[kNumMethods] = {
    "copy", "non-temporal", "non-temporal, 2 streams", "triad",
    "non-temporal triad"};

void concord::bench::check(int32_t status) {
  if (status == CONCORD_OK)
    return;
  std::fprintf(stderr, "comm-bench: %s: %s\n", concord_status_name(status),
               concord_last_error());
  std::_Exit(1);
}

//===----------------------------------------------------------------------===//
// Bandwidth
//===----------------------------------------------------------------------===//

namespace {

#if defined(__x86_64__)
using Line = float __attribute__((vector_size(64)));

/// The loops of one processor class. `bytes` is a multiple of 128.
template <int kMethod>
[[gnu::always_inline]] inline void
moveBytes(char *to, const char *from, const char *other, uint64_t bytes) {
  auto line = [](const char *at) {
    return *reinterpret_cast<const Line *>(at);
  };
  auto past = [](char *at, Line value) {
    __builtin_nontemporal_store(value, reinterpret_cast<Line *>(at));
  };
  uint64_t half = bytes / 128 * 64;
  switch (kMethod) {
  case 1:
    for (uint64_t i = 0; i < bytes; i += 128) {
      Line a = line(from + i), b = line(from + i + 64);
      past(to + i, a);
      past(to + i + 64, b);
    }
    break;
  case 2:
    for (uint64_t i = 0; i < half; i += 64) {
      Line a = line(from + i), b = line(from + half + i);
      past(to + i, a);
      past(to + half + i, b);
    }
    break;
  case 3:
    for (uint64_t i = 0; i < bytes; i += 64)
      *reinterpret_cast<Line *>(to + i) =
          line(from + i) + 3.0f * line(other + i);
    break;
  default:
    for (uint64_t i = 0; i < bytes; i += 64)
      past(to + i, line(from + i) + 3.0f * line(other + i));
  }
  _mm_sfence();
}
template <int kMethod>
[[gnu::target("avx512f")]] void moveAvx512(char *to, const char *from,
                                           const char *other, uint64_t bytes) {
  moveBytes<kMethod>(to, from, other, bytes);
}
template <int kMethod>
[[gnu::target("avx2")]] void moveAvx2(char *to, const char *from,
                                      const char *other, uint64_t bytes) {
  moveBytes<kMethod>(to, from, other, bytes);
}
#endif
template <int kMethod>
void moveBase(char *to, const char *from, const char *other, uint64_t bytes) {
#if defined(__x86_64__)
  moveBytes<kMethod>(to, from, other, bytes);
#else
  auto *target = reinterpret_cast<float *>(to);
  auto *a = reinterpret_cast<const float *>(from);
  auto *b = reinterpret_cast<const float *>(other);
  if (kMethod < 3)
    std::memcpy(to, from, bytes);
  else
    for (uint64_t i = 0; i < bytes / sizeof(float); ++i)
      target[i] = a[i] + 3.0f * b[i];
#endif
}

using Mover = void (*)(char *, const char *, const char *, uint64_t);

template <int kMethod> Mover mover() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f"))
    return moveAvx512<kMethod>;
  if (__builtin_cpu_supports("avx2"))
    return moveAvx2<kMethod>;
#endif
  return moveBase<kMethod>;
}

void plainCopy(char *to, const char *from, const char *, uint64_t bytes) {
  std::memcpy(to, from, bytes);
}

/// One line per rank, shared by all.
struct alignas(128) Flag {
  std::atomic<uint64_t> value;
};

//===----------------------------------------------------------------------===//
// The back end
//===----------------------------------------------------------------------===//

class Concord final : public ConcordRank {
public:
  Concord(const Address &address, int flagsFd, Memory memory)
      : memory(memory), capacity(address.capacity), rotate(address.rotate),
        flagsFile(flagsFd) {
    check(concord_context_create(nullptr, &context));
    check(concord_context_rank(context, &worldMe, &worldRanks));
    check(concord_comm_world(context, &world));
    group = world;
    int color = 0;
    if (!address.split.empty() && splitColor(address.split, worldMe, color))
      check(concord_comm_split(world, color, worldMe, nullptr, &group));
    check(concord_comm_rank(group, &me, &ranks));
    static_assert(sizeof(Flag) * 64 == kFlagBytes);
    if (flagsFd < 0)
      return;
    void *page = ::mmap(nullptr, kFlagBytes + kSharedBytes,
                        PROT_READ | PROT_WRITE, MAP_SHARED, flagsFd, 0);
    if (page == MAP_FAILED) {
      std::perror("comm-bench: mmap of the flags");
      std::_Exit(1);
    }
    flags = static_cast<Flag *>(page);
  }
  ~Concord() override { check(concord_context_finalize(context)); }

  int rank() const override { return me; }
  int size() const override { return ranks; }
  int worldRank() const override { return worldMe; }
  int worldSize() const override { return worldRanks; }
  std::string version() const override { return "Concord"; }

  char *allocate(uint64_t bytes) override {
    void *buffer = nullptr;
    if (memory == kSymmetric)
      check(concord_heap_alloc(context, bytes, 4096, &buffer));
    else if (::posix_memalign(&buffer, 4096, bytes) != 0)
      check(CONCORD_ERROR_OUT_OF_MEMORY);
    if (memory == kRegistered)
      check(concord_buffer_register(context, buffer, bytes));
    (buffers[0] ? buffers[1] : buffers[0]) = static_cast<char *>(buffer);
    return static_cast<char *>(buffer);
  }

  bool supports(const Call &) const override { return true; }

  void run(const Call &c, const char *in, char *out) override {
    return issue(group, c, in, out, nullptr);
  }
  void barrier() override { check(concord_barrier(world, nullptr)); }

  std::vector<double> special(uint32_t what, const Call &call,
                              const std::vector<uint64_t> &a) override {
    switch (what) {
    case kBandwidth:
      return bandwidth(a[0], double(a[1]), a[2], a[3] != 0);
    case kFlag:
      return {flagLatency()};
    case kFlood:
      return flood(call, a[0], a[1], a[2] != 0);
    case kExplain: {
      char text[600];
      check(concord_comm_last_form(group, text, sizeof text));
      return std::vector<double>(text, text + std::strlen(text));
    }
    case kCycle:
      return cycle(call, a[0], a[1], double(a[2]));
    case kContended:
      return {contended(double(a[0]))};
    case kProduct:
      return {product(int32_t(a[0]), a[1], a[2], a[3])};
    case kUpdate:
      return {update()};
    case kBare:
      if (!bare)
        bare = std::make_unique<BareLoops>(flagsFile, capacity, worldMe,
                                           worldRanks, rotate,
                                           memory != kSymmetric);
      return {bare->run(call, BareWay(a[0]), a[1])};
    case kIssuePath:
      return issuePath(call, a[0]);
    default:
      return {};
    }
  }

  std::vector<double> pair(int a, int b, uint64_t bytes,
                           uint64_t iterations) override {
    barrier();
    if (worldMe != a && worldMe != b)
      return {};
    int peer = worldMe == a ? b : a;
    auto send = [&] {
      check(concord_send(world, buffers[0], bytes, CONCORD_DTYPE_U8, peer,
                         nullptr));
    };
    double began = 0;
    for (uint64_t i = 0; i <= iterations; ++i) {
      if (i == 1)
        began = microseconds();
      if (worldMe == a)
        send();
      check(concord_recv(world, buffers[1], bytes, CONCORD_DTYPE_U8, peer,
                         nullptr));
      if (worldMe == b)
        send();
    }
    return {(microseconds() - began) / double(2 * iterations)};
  }

private:
  void issue(concord_comm *comm, const Call &c, const char *in, char *out,
             concord_stream *stream) {
    switch (c.kind) {
    case kAllReduce:
      return check(concord_all_reduce(comm, in, out, c.count, c.type,
                                      c.reduction, stream));
    case kAllGather:
      return check(concord_all_gather(comm, in, out, c.count, c.type, stream));
    case kReduceScatter:
      return check(concord_reduce_scatter(comm, in, out, c.count, c.type,
                                          c.reduction, stream));
    case kAllToAll:
      return check(concord_all_to_all(comm, in, out, c.count, c.type, stream));
    case kBroadcast:
      return check(
          concord_broadcast(comm, in, out, c.count, c.type, c.root, stream));
    case kReduce:
      return check(concord_reduce(comm, in, out, c.count, c.type, c.reduction,
                                  c.root, stream));
    case kGather:
      return check(
          concord_gather(comm, in, out, c.count, c.type, c.root, stream));
    case kScatter:
      return check(
          concord_scatter(comm, in, out, c.count, c.type, c.root, stream));
    case kPermute: {
      int32_t pairs[128];
      for (int r = 0; r < ranks; ++r) {
        pairs[2 * r] = r;
        pairs[2 * r + 1] = (r + 1) % ranks;
      }
      return check(concord_permute(comm, in, out, c.count, c.type, pairs,
                                   uint32_t(ranks), stream));
    }
    case kSendRecv: {
      concord_p2p messages[2] = {};
      messages[0].send = 1;
      messages[0].peer = (me + 1) % ranks;
      messages[0].buffer = const_cast<char *>(in);
      messages[1].peer = (me + ranks - 1) % ranks;
      messages[1].buffer = out;
      for (concord_p2p &message : messages) {
        message.count = c.count;
        message.dtype = c.type;
      }
      return check(concord_batch_p2p(comm, messages, 2, stream));
    }
    default:
      return check(concord_barrier(comm, stream));
    }
  }

  /// All ranks that have a core of their own move bytes at once.
  std::vector<double> bandwidth(uint64_t bytes, double spend, uint64_t workers,
                                bool reused) {
    static const Mover kMovers[kNumMethods] = {
        plainCopy, mover<1>(), mover<2>(), mover<3>(), mover<4>()};
    // A third of the input and the output, in turn, as the operations do.
    uint64_t length =
        std::max<uint64_t>(std::min(bytes, capacity / 2) / 128 * 128, 128);
    bool working = worldMe < int(std::thread::hardware_concurrency()) &&
                   (workers == 0 || worldMe < int(workers));
    std::vector<double> numbers;
    for (int method = 0; method < kNumMethods; ++method) {
      // The triad reads two arrays and writes one: two thirds of the length.
      bool triad = method >= 3;
      uint64_t n =
          triad ? std::max<uint64_t>(length * 2 / 3 / 128 * 128, 128) : length;
      uint64_t pitch = triad ? 2 * n : n;
      uint64_t slots =
          rotate && !reused ? std::max<uint64_t>(capacity / pitch, 1) : 1;
      auto once = [&] {
        bandwidthTurn = (bandwidthTurn + 1) % slots;
        const char *from = buffers[0] + bandwidthTurn * pitch;
        kMovers[method](buffers[1] + bandwidthTurn * pitch, from,
                        triad ? from + n : from, n);
      };
      bandwidthTurn %= slots;
      // Windows: one that was interrupted does not count.
      constexpr int kWindows = 9;
      uint64_t rounds = 1;
      if (working) {
        once();
        double began = microseconds();
        once();
        double took = std::max(microseconds() - began, 0.01);
        rounds = uint64_t(std::clamp(spend / kWindows / took, 1.0, 5000.0));
      }
      std::vector<double> windows;
      barrier();
      double begin = microseconds();
      for (int w = 0; working && w < kWindows; ++w) {
        double began = microseconds();
        if (w >= 3 && began - begin > 3 * spend)
          break;
        for (uint64_t i = 0; i < rounds; ++i)
          once();
        windows.push_back((microseconds() - began) / double(rounds));
      }
      barrier();
      std::sort(windows.begin(), windows.end());
      numbers.push_back(working ? windows[windows.size() / 2] : 0);
      numbers.push_back(working ? windows[0] : 0);
      numbers.push_back(working ? double(n) * (triad ? 3 : 2) : 0);
    }
    return numbers;
  }

  std::vector<double> issuePath(const Call &call, uint64_t operations) {
    if (!calls)
      calls = std::make_unique<CallCounter>();
    // The first ones make what later ones use.
    for (int i = 0; i < 16; ++i)
      run(call, buffers[0], buffers[1]);
    barrier();
    calls->begin();
    for (uint64_t i = 0; i < operations; ++i)
      run(call, buffers[0], buffers[1]);
    CallCounter::Counts counts = calls->end();
    return {double(counts.systemCalls), double(counts.lastCall),
            double(counts.memory)};
  }

  static void writeAll(char *at, uint64_t bytes) {
    std::memset(at, 0x3c, bytes); // a number in every type
    asm volatile("" : : "r"(at) : "memory");
  }
  static void readAll(const char *at, uint64_t bytes) {
    uint64_t sum = 0;
    for (uint64_t i = 0; i + 8 <= bytes; i += 64)
      sum += *reinterpret_cast<const uint64_t *>(at + i);
    asm volatile("" : : "r"(sum));
  }

  std::vector<double> cycle(const Call &call, uint64_t inBytes,
                            uint64_t outBytes, double spend) {
    std::vector<double> numbers;
    for (bool communicates : {true, false}) {
      std::vector<double> times;
      auto step = [&] {
        writeAll(buffers[0], inBytes);
        if (communicates)
          issue(group, call, buffers[0], buffers[1], nullptr);
        readAll(buffers[1], outBytes);
      };
      for (int i = 0; i < 3; ++i)
        step();
      barrier();
      double began = microseconds();
      step();
      // All ranks take as many steps.
      double each = std::max(microseconds() - began, 0.1);
      uint64_t steps = uint64_t(std::clamp(spend / each, 5.0, 2000.0));
      check(concord_all_reduce(world, &steps, &steps, 1, CONCORD_DTYPE_U64,
                               CONCORD_REDUCTION_MIN, nullptr));
      for (uint64_t i = 0; i < steps; ++i) {
        barrier();
        began = microseconds();
        step();
        times.push_back(microseconds() - began);
      }
      std::nth_element(times.begin(), times.begin() + long(times.size() / 2),
                       times.end());
      numbers.push_back(times[times.size() / 2]);
    }
    return numbers;
  }

  double contended(double spend) {
    char *shared = reinterpret_cast<char *>(flags) + kFlagBytes;
    std::vector<double> times;
    if (worldRanks < 2)
      return 0;
    for (int i = 0; i < int(spend / 50) + 9; ++i) {
      if (worldMe == 1)
        readAll(shared, kSharedBytes);
      barrier();
      double began = microseconds();
      if (worldMe == 0)
        writeAll(shared, kSharedBytes);
      times.push_back(microseconds() - began);
      barrier();
    }
    std::nth_element(times.begin(), times.begin() + long(times.size() / 2),
                     times.end());
    return double(kSharedBytes) / times[times.size() / 2] * 1e6;
  }

  double product(int32_t dtype, uint64_t m, uint64_t n, uint64_t k) {
    const char *name = dtype == CONCORD_DTYPE_F64    ? "f64"
                       : dtype == CONCORD_DTYPE_F16  ? "f16"
                       : dtype == CONCORD_DTYPE_BF16 ? "bf16"
                                                     : "f32";
    std::string text = std::string("gemm dtype=") + name +
                       " k=" + std::to_string(k) + " m=" + std::to_string(m) +
                       " n=" + std::to_string(n) + " packed=1";
    concord_kernel *kernel = nullptr;
    concord_kernel_info info{};
    info.struct_size = sizeof info;
    if (concord_kernel_create(text.c_str(), &kernel, &info) != 0)
      return 0;
    auto buffer = [](uint64_t bytes) {
      void *at = nullptr;
      if (::posix_memalign(&at, 4096, bytes + 64) != 0)
        check(CONCORD_ERROR_OUT_OF_MEMORY);
      std::memset(at, 0, bytes + 64);
      return at;
    };
    uint64_t es = typeSize(dtype);
    void *pointers[3] = {buffer(m * k * es), buffer(info.packed_weight_bytes),
                         buffer(m * n * es)};
    void *workspace = buffer(info.workspace_bytes);
    bool working = worldMe < int(std::thread::hardware_concurrency());
    double best = INFINITY;
    barrier();
    for (int i = 0; working && i < 40; ++i) {
      double began = microseconds();
      concord_kernel_run(kernel, pointers, workspace);
      best = std::min(best, microseconds() - began);
    }
    barrier();
    for (void *at : pointers)
      std::free(at);
    std::free(workspace);
    concord_kernel_destroy(kernel);
    return working ? 2e6 * double(m) * double(n) * double(k) / best : 0;
  }

  /// Adam against handing on, both in a core's own cache: the difference is the
  /// arithmetic.
  double update() {
    constexpr uint64_t kElements = 8192;
    constexpr double kInstructions = 11; ///< of Adam, without constants
    auto text = [](const char *program, const char *results) {
      return "fused_update count=" + std::to_string(kElements) +
             " dtype=f32 inputs=[f32,f32,f32] members=1 outputs=[f32,f32] "
             "program=\"" +
             program + "\" results=" + results;
    };
    const std::string texts[] = {
        // 0 gradient, 1 to 3 parameter and moments, 4 to 8 constants.
        text("const 3f666666;const 3dccccd0;const 3f7fbe77;const 3a831200;"
             "const 322bcc77;mul 4 2;mul 5 0;add 9 10;mul 0 0;mul 6 3;"
             "mul 7 12;add 13 14;sqrt 15;add 16 8;div 11 17;sub 1 18",
             "[19,11,15]"),
        text("", "[1,2,3]")};
    double best[2] = {INFINITY, INFINITY};
    concord_kernel *kernels[2] = {};
    concord_kernel_info info[2] = {};
    for (int i = 0; i < 2; ++i) {
      info[i].struct_size = sizeof info[i];
      if (concord_kernel_create(texts[i].c_str(), &kernels[i], &info[i]) != 0) {
        std::fprintf(stderr, "comm-bench: %s\n", concord_kernel_last_error());
        std::_Exit(1);
      }
    }
    std::vector<std::vector<float>> values(7,
                                           std::vector<float>(kElements, 0.5f));
    values.emplace_back(
        std::max(info[0].workspace_bytes, info[1].workspace_bytes) /
            sizeof(float) +
        16);
    void *pointers[8];
    for (int i = 0; i < 8; ++i) {
      pointers[i] = values[size_t(i)].data();
    }
    // Gradient and gathered values are the shared operands, of one member.
    void *const *peers[8] = {};
    peers[0] = &pointers[0];
    peers[4] = &pointers[4];
    bool working = worldMe < int(std::thread::hardware_concurrency());
    barrier();
    for (int turn = 0; working && turn < 200; ++turn)
      for (int i = 0; i < 2; ++i) {
        concord_fused_info fused{};
        fused.struct_size = sizeof fused;
        concord_kernel_fused(kernels[i], &fused);
        double began = microseconds();
        for (uint32_t part = 0; part < fused.parts; ++part) {
          concord_fused_step step{};
          step.struct_size = sizeof step;
          step.what = CONCORD_STEP_COMBINE;
          step.part = part;
          step.pointers = pointers;
          step.peers = peers;
          step.workspace = pointers[7];
          concord_kernel_step(kernels[i], &step);
        }
        best[i] = std::min(best[i], microseconds() - began);
      }
    barrier();
    for (concord_kernel *kernel : kernels)
      concord_kernel_destroy(kernel);
    return working ? std::max(best[0] - best[1], 0.0) * 1e3 /
                         (kInstructions * double(kElements))
                   : 0;
  }

  double flagLatency() {
    constexpr double kSpend = 1000;
    barrier();
    if (worldMe > 1 || worldRanks < 2)
      return 0;
    // Rank 0 counts up; bit 63 says that it was the last time. A line for each
    // of some counts, of which the next is asked for while the flag travels: a
    // store to the line that the other has just read would wait for that.
    constexpr uint64_t kLast = uint64_t(1) << 63, kLines = 16;
    auto line = [&](int rank, uint64_t count) -> std::atomic<uint64_t> & {
      return flags[2 * (count % kLines) + uint64_t(rank)].value;
    };
    auto store = [&](uint64_t count, uint64_t bit) {
      line(worldMe, count).store(count | bit, std::memory_order_release);
      __builtin_prefetch(&line(worldMe, count + 1), /*rw=*/1);
    };
    // Looking all the time is in the way of a rank that shares the core; for
    // others a pause comes late. So both, in turn.
    auto await = [&](uint64_t count) {
      const std::atomic<uint64_t> &other = line(1 - worldMe, count);
      uint64_t seen;
      for (int spins = 0;
           ((seen = other.load(std::memory_order_acquire)) & ~kLast) != count;
           ++spins) {
        if (spins > 2000)
          ::sched_yield();
#if defined(__x86_64__)
        if (count / 64 % 2)
          __builtin_ia32_pause();
#endif
      }
      return seen & kLast;
    };
    double began = microseconds();
    if (worldMe == 1) {
      uint64_t last = 0;
      while (!last) {
        last = await(++flagSeen);
        store(flagSeen, last);
      }
      return 0;
    }
    uint64_t rounds = 0;
    double best = INFINITY, window = began;
    for (bool last = false; !last; ++rounds) {
      if (rounds % 8 == 7) {
        double time = microseconds();
        best = std::min(best, (time - window) / 16);
        window = time;
        // Longer where other processes get between every two looks.
        last = time - began > (best < 5 ? kSpend : 30 * kSpend);
      }
      store(++flagSeen, last ? kLast : 0);
      await(flagSeen);
    }
    return best;
  }

  /// One thread issues both: a low-priority operation is in flight at all
  /// times, and the high-priority one is waited for.
  std::vector<double> flood(const Call &call, uint64_t lowBytes,
                            uint64_t samples, bool flooded) {
    if (!high) {
      concord_comm_config config{};
      config.struct_size = sizeof config;
      config.name = "high";
      config.priority = 1;
      check(concord_comm_split(world, 0, worldMe, &config, &high));
      config.name = "low";
      config.priority = -1;
      check(concord_comm_split(world, 0, worldMe, &config, &low));
      check(concord_stream_create(context, 1, &highStream));
      check(concord_stream_create(context, -1, &lowStream));
    }
    char *small = buffers[0];
    char *smallOut = buffers[1];
    uint64_t at = 1 << 16;
    Call big = call;
    big.count = std::min(lowBytes, capacity - at) / typeSize(call.type);
    std::vector<double> numbers;
    barrier();
    uint64_t issued = 0;
    double gap = 0;
    while (numbers.size() < 2 * samples) {
      // Two low-priority operations ahead, so that one is always in flight.
      if (flooded && issued % 8 == 0) {
        // How much later than its peer a rank learns that the low one has ended
        // is no latency of the high one: all go on together.
        if (issued) {
          check(concord_stream_synchronize(lowStream));
          barrier();
        }
        for (int i = 0; i < 2; ++i)
          issue(low, big, buffers[0] + at, buffers[1] + at, lowStream);
      }
      ++issued;
      // A pause of irregular length, during which the engine is polled, as by
      // generated code at tile boundaries.
      gap = std::fmod(gap * 1.7 + 37, 400);
      double until = microseconds() + gap;
      while (microseconds() < until)
        concord_poll(context);
      double began = microseconds();
      issue(high, call, small, smallOut, highStream);
      check(concord_stream_synchronize(highStream));
      numbers.push_back(began);
      numbers.push_back(microseconds() - began);
    }
    if (flooded)
      check(concord_stream_synchronize(lowStream));
    return numbers;
  }

  Memory memory;
  uint64_t capacity;
  bool rotate;
  concord_comm *group = nullptr;
  concord_comm *high = nullptr, *low = nullptr;
  concord_stream *highStream = nullptr, *lowStream = nullptr;
  int me = 0, ranks = 1, worldMe = 0, worldRanks = 1;
  char *buffers[2] = {};
  uint64_t bandwidthTurn = 0, flagSeen = 0;
  int flagsFile;
  Flag *flags = nullptr;
  // From when they are first asked for.
  std::unique_ptr<BareLoops> bare;
  std::unique_ptr<CallCounter> calls;
};

} // namespace

std::unique_ptr<ConcordRank>
concord::bench::makeConcord(const Address &address, int flags, Memory memory) {
  return std::make_unique<Concord>(address, flags, memory);
}

int concord::bench::runConcordRank(char **arguments) {
  Address address;
  address.parse(arguments);
  char **more = arguments + Address::kArguments;
  Concord concord(address, std::atoi(more[0]), Memory(std::atoi(more[1])));
  return Station(concord, address).serve();
}
