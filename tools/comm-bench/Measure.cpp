//===- Measure.cpp - Timing one row -------------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The measuring side of comm-bench, run by every rank alike.
//
//===----------------------------------------------------------------------===//

#include "Measure.h"
#include "concord/dtype.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <time.h>
#include <unistd.h>

using namespace concord;
using namespace concord::bench;

static constexpr uint64_t kRotation = uint64_t(72) << 20;

static double now() {
  timespec t;
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return double(t.tv_sec) * 1e6 + double(t.tv_nsec) * 1e-3;
}

static void check(int32_t status) {
  if (status == CONCORD_OK)
    return;
  std::fprintf(stderr, "comm-bench: %s: %s\n", concord_status_name(status),
               concord_last_error());
  std::_Exit(1);
}

Bench::Bench(const Options &options) : options(options) {
  check(concord_context_create(nullptr, &context));
  check(concord_context_rank(context, &me, &ranks));
  check(concord_comm_world(context, &world));
  capacity = std::max<uint64_t>(options.to + 4096 * uint64_t(ranks),
                                options.rotate ? kRotation : 4096);
  for (char **buffer : {&input, &output}) {
    if (options.foreign) {
      void *memory = nullptr;
      if (::posix_memalign(&memory, 4096, capacity) != 0) {
        std::fprintf(stderr, "comm-bench: no memory\n");
        std::_Exit(1);
      }
      *buffer = static_cast<char *>(memory);
    } else {
      void *memory = nullptr;
      check(concord_heap_alloc(context, capacity, 4096, &memory));
      *buffer = static_cast<char *>(memory);
    }
    std::memset(*buffer, 0, capacity);
  }
}

Bench::~Bench() { check(concord_context_finalize(context)); }

void Bench::call(const char *in, char *out, uint64_t count, int32_t dtype,
                 int32_t reduction) {
  switch (options.kind) {
  case CONCORD_KIND_ALL_REDUCE:
    return check(
        concord_all_reduce(world, in, out, count, dtype, reduction, nullptr));
  case CONCORD_KIND_ALL_GATHER:
    return check(concord_all_gather(world, in, out, count, dtype, nullptr));
  case CONCORD_KIND_REDUCE_SCATTER:
    return check(concord_reduce_scatter(world, in, out, count, dtype, reduction,
                                        nullptr));
  case CONCORD_KIND_ALL_TO_ALL:
    return check(concord_all_to_all(world, in, out, count, dtype, nullptr));
  case CONCORD_KIND_BROADCAST:
    return check(
        concord_broadcast(world, in, out, count, dtype, options.root, nullptr));
  case CONCORD_KIND_REDUCE:
    return check(concord_reduce(world, in, out, count, dtype, reduction,
                                options.root, nullptr));
  case CONCORD_KIND_GATHER:
    return check(
        concord_gather(world, in, out, count, dtype, options.root, nullptr));
  case CONCORD_KIND_SCATTER:
    return check(
        concord_scatter(world, in, out, count, dtype, options.root, nullptr));
  case CONCORD_KIND_PERMUTE: {
    int32_t pairs[128];
    for (int r = 0; r < ranks; ++r) {
      pairs[2 * r] = r;
      pairs[2 * r + 1] = (r + 1) % ranks;
    }
    return check(concord_permute(world, in, out, count, dtype, pairs,
                                 uint32_t(ranks), nullptr));
  }
  default:
    return check(concord_barrier(world, nullptr));
  }
}

double Bench::combine(double mine, int how) {
  static const int32_t kHow[] = {0, CONCORD_REDUCTION_AVG,
                                 CONCORD_REDUCTION_MIN, CONCORD_REDUCTION_MAX};
  double value = mine;
  if (how == 0)
    check(concord_broadcast(world, &mine, &value, 1, CONCORD_DTYPE_F64, 0,
                            nullptr));
  else
    check(concord_all_reduce(world, &mine, &value, 1, CONCORD_DTYPE_F64,
                             kHow[how], nullptr));
  return value;
}

/// Input element i of rank r: a small integer, never zero.
static int valueOf(int rank, uint64_t i) { return 1 + int((rank + i) % 3); }

template <typename Each> static void withType(int32_t dtype, Each each) {
  switch (dtype) {
  case CONCORD_DTYPE_F32:
    return each(float());
  case CONCORD_DTYPE_F64:
    return each(double());
  case CONCORD_DTYPE_F16:
    return each(_Float16());
  case CONCORD_DTYPE_I8:
    return each(int8_t());
  case CONCORD_DTYPE_U8:
    return each(uint8_t());
  case CONCORD_DTYPE_I32:
    return each(int32_t());
  case CONCORD_DTYPE_U32:
    return each(uint32_t());
  case CONCORD_DTYPE_I64:
    return each(int64_t());
  case CONCORD_DTYPE_U64:
    return each(uint64_t());
  }
}

/// bfloat16 by its bits: the values are small integers, exact in 8 bits.
static uint16_t toBf16(double value) {
  float f = float(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void fill(char *at, uint64_t elements, int32_t dtype, int rank) {
  if (dtype == CONCORD_DTYPE_BF16) {
    for (uint64_t i = 0; i < elements; ++i)
      reinterpret_cast<uint16_t *>(at)[i] = toBf16(valueOf(rank, i));
    return;
  }
  withType(dtype, [&](auto zero) {
    auto *values = reinterpret_cast<decltype(zero) *>(at);
    for (uint64_t i = 0; i < elements; ++i)
      values[i] = decltype(zero)(valueOf(rank, i));
  });
}

int64_t Bench::countWrong(const char *out, uint64_t count, int32_t dtype,
                          int32_t reduction) {
  int kind = options.kind;
  bool rooted = kind == CONCORD_KIND_REDUCE || kind == CONCORD_KIND_GATHER;
  if (rooted && me != options.root)
    return 0;
  uint64_t elements = count;
  if (kind == CONCORD_KIND_ALL_GATHER || kind == CONCORD_KIND_ALL_TO_ALL ||
      kind == CONCORD_KIND_GATHER)
    elements *= uint64_t(ranks);
  auto expected = [&](uint64_t i) -> double {
    uint64_t chunk = count ? i / count : 0, within = count ? i % count : 0;
    switch (kind) {
    case CONCORD_KIND_ALL_GATHER:
    case CONCORD_KIND_GATHER:
      return valueOf(int(chunk), within);
    case CONCORD_KIND_ALL_TO_ALL:
      return valueOf(int(chunk), uint64_t(me) * count + within);
    case CONCORD_KIND_BROADCAST:
      return valueOf(options.root, i);
    case CONCORD_KIND_SCATTER:
      return valueOf(options.root, uint64_t(me) * count + i);
    case CONCORD_KIND_PERMUTE:
      return valueOf((me + ranks - 1) % ranks, i);
    default:
      break;
    }
    if (kind == CONCORD_KIND_REDUCE_SCATTER)
      i += uint64_t(me) * count;
    double result = valueOf(0, i);
    for (int r = 1; r < ranks; ++r) {
      double next = valueOf(r, i);
      switch (reduction) {
      case CONCORD_REDUCTION_PROD:
        result *= next;
        break;
      case CONCORD_REDUCTION_MIN:
        result = std::min(result, next);
        break;
      case CONCORD_REDUCTION_MAX:
        result = std::max(result, next);
        break;
      case CONCORD_REDUCTION_AND:
        result = double(int64_t(result) & int64_t(next));
        break;
      case CONCORD_REDUCTION_OR:
        result = double(int64_t(result) | int64_t(next));
        break;
      default:
        result += next;
      }
    }
    return reduction == CONCORD_REDUCTION_AVG ? result / ranks : result;
  };
  int64_t wrong = 0;
  if (dtype == CONCORD_DTYPE_BF16) {
    for (uint64_t i = 0; i < elements; ++i)
      wrong +=
          reinterpret_cast<const uint16_t *>(out)[i] != toBf16(expected(i));
    return wrong;
  }
  withType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto *values = reinterpret_cast<const T *>(out);
    for (uint64_t i = 0; i < elements; ++i) {
      T value;
      if constexpr (std::is_same_v<T, _Float16>)
        value = T(float(expected(i)));
      else if constexpr (std::is_integral_v<T>)
        value = T(int64_t(expected(i)));
      else
        value = T(expected(i));
      // Averages are rounded once here and twice where f32 is in between.
      double difference = double(values[i]) - double(value);
      wrong += difference > 1e-6 * double(value) ||
               difference < -1e-6 * double(value);
    }
  });
  return wrong;
}

Timing Bench::time(uint64_t count, int32_t dtype, int32_t reduction,
                   bool inPlace, uint64_t inBytes, uint64_t outBytes) {
  Timing timing;
  uint64_t whole = std::max(inBytes, outBytes);
  uint64_t pitch = std::max<uint64_t>((whole + 4095) / 4096 * 4096, 4096);
  uint64_t slots = options.rotate ? std::max<uint64_t>(capacity / pitch, 1) : 1;
  // A few hundred are enough to leave the cache only for large operations; for
  // small ones the rotation would measure address translation instead.
  if (whole < 65536)
    slots = std::min<uint64_t>(slots, 16);
  uint64_t size = dtypeSize(DType(dtype));
  uint64_t shift = 0; // of the input within the output, in place
  if (options.kind == CONCORD_KIND_ALL_GATHER ||
      options.kind == CONCORD_KIND_GATHER)
    shift = uint64_t(me) * count * size;
  uint64_t outShift = options.kind == CONCORD_KIND_REDUCE_SCATTER ||
                              options.kind == CONCORD_KIND_SCATTER
                          ? uint64_t(me) * count * size
                          : 0;
  auto in = [&](uint64_t i) {
    return (inPlace ? output + shift : input) + i % slots * pitch;
  };
  auto out = [&](uint64_t i) {
    return output + i % slots * pitch + (inPlace ? outShift : 0);
  };
  for (uint64_t i = 0; i < slots; ++i)
    fill(in(i), inBytes / size, dtype, me);
  if (options.check) {
    call(in(0), out(0), count, dtype, reduction);
    double wrong =
        combine(double(countWrong(out(0), count, dtype, reduction)), 3);
    timing.wrong = int64_t(wrong);
    fill(in(0), inBytes / size, dtype, me);
  }
  int iterations = options.iterations;
  if (!iterations)
    iterations = int(std::clamp<uint64_t>((uint64_t(256) << 20) / (whole + 1),
                                          20, 20000)) /
                 (ranks > 2 ? 4 : 1);
  for (int i = 0; i < options.warmup + int(std::min<uint64_t>(slots, 64)); ++i)
    call(in(uint64_t(i)), out(uint64_t(i)), count, dtype, reduction);
  check(concord_barrier(world, nullptr));
  double began = now();
  for (int i = 0; i < iterations; ++i)
    call(in(uint64_t(i)), out(uint64_t(i)), count, dtype, reduction);
  double mean = (now() - began) / iterations;
  timing.micros = combine(mean, options.aggregate);
  // Single operations, for the percentiles only: the clock costs time, too.
  std::vector<double> single(size_t(std::min(iterations, 2000)));
  for (size_t i = 0; i < single.size(); ++i) {
    double start = now();
    call(in(i), out(i), count, dtype, reduction);
    single[i] = now() - start;
  }
  std::sort(single.begin(), single.end());
  timing.p50 = combine(single[single.size() / 2], 3);
  timing.p99 = combine(single[size_t(double(single.size() - 1) * 0.99)], 3);
  return timing;
}

#if defined(__x86_64__)
#include <immintrin.h>
static void streamCopy(char *to, const char *from, uint64_t bytes) {
  for (uint64_t i = 0; i + 16 <= bytes; i += 16)
    _mm_stream_si128(
        reinterpret_cast<__m128i *>(to + i),
        _mm_loadu_si128(reinterpret_cast<const __m128i *>(from + i)));
  _mm_sfence();
}
#else
static void streamCopy(char *to, const char *from, uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
#endif

/// Bytes loaded and stored per microsecond and rank, all ranks at once: the
/// best of copy, non-temporal copy and triad over `footprint` bytes.
double Bench::memoryBandwidth(uint64_t footprint) {
  uint64_t bytes = std::clamp<uint64_t>(footprint / 2, 4096, capacity);
  bytes = bytes / 64 * 64;
  uint64_t slots = options.rotate && footprint >= 65536 ? capacity / bytes : 1;
  int rounds = int(std::clamp<uint64_t>((uint64_t(96) << 20) / bytes, 3, 4000));
  double best = 0;
  for (int method = 0; method < 3; ++method) {
    check(concord_barrier(world, nullptr));
    double began = now();
    for (int i = 0; i < rounds; ++i) {
      uint64_t at = uint64_t(i) % slots * bytes;
      if (method == 0) {
        std::memcpy(output + at, input + at, bytes);
      } else if (method == 1) {
        streamCopy(output + at, input + at, bytes);
      } else {
        auto *to = reinterpret_cast<float *>(output + at);
        const auto *from = reinterpret_cast<const float *>(input + at);
        for (uint64_t j = 0; j < bytes / 4; ++j)
          to[j] = from[j] + 3 * to[j];
      }
      asm volatile("" ::: "memory");
    }
    double elapsed = combine(now() - began, 3);
    double moved = double(bytes) * (method == 2 ? 3 : 2) * rounds;
    best = std::max(best, moved / elapsed);
  }
  return best;
}

Row Bench::measure(uint64_t bytes, int32_t dtype, int32_t reduction) {
  Row row;
  uint64_t size = dtypeSize(DType(dtype)), p = uint64_t(ranks);
  row.dtype = dtype;
  row.reduction = reduction;
  int kind = options.kind;
  bool divided = kind == CONCORD_KIND_ALL_GATHER ||
                 kind == CONCORD_KIND_REDUCE_SCATTER ||
                 kind == CONCORD_KIND_ALL_TO_ALL ||
                 kind == CONCORD_KIND_GATHER || kind == CONCORD_KIND_SCATTER;
  row.count = bytes / size / (divided ? p : 1);
  row.bytes = row.count * size * (divided ? p : 1);
  uint64_t chunk = row.count * size;
  bool wideIn = kind == CONCORD_KIND_REDUCE_SCATTER ||
                kind == CONCORD_KIND_ALL_TO_ALL || kind == CONCORD_KIND_SCATTER;
  bool wideOut = kind == CONCORD_KIND_ALL_GATHER ||
                 kind == CONCORD_KIND_ALL_TO_ALL || kind == CONCORD_KIND_GATHER;
  uint64_t inBytes = wideIn ? chunk * p : chunk;
  uint64_t outBytes = wideOut ? chunk * p : chunk;
  row.outOfPlace = time(row.count, dtype, reduction, false, inBytes, outBytes);
  row.inPlace = time(row.count, dtype, reduction, true, inBytes, outBytes);
  double s = double(row.bytes), n = double(p);
  double micros = row.outOfPlace.micros;
  row.algorithmBandwidth = s / micros * 1e-3;
  double factor = 1;
  if (kind == CONCORD_KIND_ALL_REDUCE)
    factor = 2 * (n - 1) / n;
  else if (divided)
    factor = (n - 1) / n;
  row.busBandwidth = row.algorithmBandwidth * factor;
  // Bytes that a rank has to load and store at least.
  double moved = 2 * s;
  if (kind == CONCORD_KIND_REDUCE_SCATTER || kind == CONCORD_KIND_ALL_GATHER)
    moved = s * (1 + 1 / n);
  if (row.bytes >= 4096)
    row.efficiency = moved / memoryBandwidth(uint64_t(moved)) / micros;
  return row;
}
