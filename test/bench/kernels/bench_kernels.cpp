//===- bench_kernels.cpp - Our GEMM against oneDNN, alternating -----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// For each shape, runs our gemm, dnnl_sgemm and a oneDNN matmul primitive with
// reordered weights in turn, in one process and one thread, and prints medians
// and the ratio (faster oneDNN time) / (our time). The floor is 1. Of bf16
// there is the primitive only, and that not on every processor.
//
// bench_kernels [--filter TEXT] [--type f32|bf16] [--rounds N] [--json FILE]
//               [--allocs]
//
//===----------------------------------------------------------------------===//

#include "concord/kernel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.hpp>
#include <unistd.h>

namespace {

/// Time of this thread on a CPU: other work on the machine delays us, but does
/// not count (it still shares caches and memory).
double cpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

long mallocCalls = 0;

struct Buffer {
  explicit Buffer(size_t floats)
      : data(static_cast<float *>(
            aligned_alloc(64, (floats * 4 + 127) / 64 * 64))) {
    for (size_t i = 0; i < floats; ++i)
      data[i] = float(int(i * 2654435761u >> 16 & 1023) - 512) / 512.0f;
  }
  Buffer(const Buffer &) = delete;
  ~Buffer() { free(data); }
  float *data;
};

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2,
                   values.end());
  return values[values.size() / 2];
}

double timeOf(const std::function<void()> &body, int iterations) {
  double start = cpuSeconds();
  for (int i = 0; i < iterations; ++i)
    body();
  return (cpuSeconds() - start) / iterations;
}

struct Row {
  std::string name;
  double ours, sgemm, primitive;
  double oneDNN() const { return std::min(sgemm, primitive); }
};

std::vector<Row> rows;
int rounds = 15;

/// `sgemm` may be empty; `primitive`, too, where oneDNN has none for this
/// processor: such rows are printed and not judged.
void compare(const std::string &name, double flops,
             const std::function<void()> &ours,
             const std::function<void()> &sgemm,
             const std::function<void()> &primitive) {
  ours();
  if (sgemm)
    sgemm();
  if (primitive)
    primitive();
  int iterations = std::max(1, int(1e-3 / std::max(timeOf(ours, 1), 1e-7)));
  std::vector<double> a, b, c;
  for (int round = 0; round < rounds; ++round) {
    a.push_back(timeOf(ours, iterations));
    b.push_back(sgemm ? timeOf(sgemm, iterations) : INFINITY);
    c.push_back(primitive ? timeOf(primitive, iterations) : INFINITY);
  }
  Row row{name, median(a), median(b), median(c)};
  printf("%-34s %10.2f us %7.1f GF/s | ", name.c_str(), row.ours * 1e6,
         flops / row.ours * 1e-9);
  if (sgemm)
    printf("sgemm %10.2f us | ", row.sgemm * 1e6);
  if (!primitive) {
    printf("oneDNN has none for this processor\n");
    fflush(stdout);
    return;
  }
  rows.push_back(row);
  printf("matmul %10.2f us | ratio %.2f%s\n", row.primitive * 1e6,
         row.oneDNN() / row.ours, row.oneDNN() < row.ours ? "  *" : "");
  fflush(stdout);
}

/// The interface changed with oneDNN 3 (Debian 13).
dnnl::matmul::primitive_desc
describeMatmul(const dnnl::engine &cpu, const dnnl::memory::desc &a,
               const dnnl::memory::desc &b, const dnnl::memory::desc &c,
               const dnnl::primitive_attr &attr = dnnl::primitive_attr()) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(cpu, a, b, c, attr);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attr, cpu);
#endif
}

struct OurKernel {
  explicit OurKernel(const std::string &text) {
    info.struct_size = sizeof info;
    if (concord_kernel_create(text.c_str(), &kernel, &info) != 0) {
      fprintf(stderr, "%s: %s\n", text.c_str(), concord_kernel_last_error());
      exit(2);
    }
    workspace = aligned_alloc(64, info.workspace_bytes / 64 * 64 + 64);
    packed = aligned_alloc(64, info.packed_weight_bytes / 64 * 64 + 64);
  }
  ~OurKernel() {
    concord_kernel_destroy(kernel);
    free(workspace);
    free(packed);
  }
  concord_kernel *kernel = nullptr;
  concord_kernel_info info = {};
  void *workspace, *packed;
};

/// The upper halves of n floats, where they are, as bfloat16.
void truncate(float *data, size_t n) {
  char *bytes = reinterpret_cast<char *>(data);
  for (size_t i = 0; i < n; ++i)
    memmove(bytes + 2 * i, bytes + 4 * i + 2, 2);
}

float fromBfloat(const float *data, size_t i) {
  uint32_t word = 0;
  memcpy(reinterpret_cast<char *>(&word) + 2,
         reinterpret_cast<const char *>(data) + 2 * i, 2);
  float value;
  memcpy(&value, &word, 4);
  return value;
}

double worst(const float *a, const float *b, size_t n) {
  double error = 0;
  for (size_t i = 0; i < n; ++i)
    error = std::max(error, double(std::fabs(a[i] - b[i])));
  return error;
}

void weightShape(bool half, int64_t m, int64_t k, int64_t n) {
  using namespace dnnl;
  static engine cpu(engine::kind::cpu, 0);
  static stream queue(cpu);
  Buffer a(m * k), w(k * n), c0(m * n), c1(m * n), c2(m * n);
  if (half) {
    truncate(a.data, m * k);
    truncate(w.data, k * n);
  }
  std::string text = "gemm dtype=" + std::string(half ? "bf16" : "f32") +
                     " k=" + std::to_string(k) + " m=" + std::to_string(m) +
                     " n=" + std::to_string(n) + " packed=1";
  OurKernel ours(text);
  concord_kernel_pack(ours.kernel, w.data, ours.packed);
  const auto type = half ? memory::data_type::bf16 : memory::data_type::f32;
  memory::desc ad({m, k}, type, memory::format_tag::ab);
  memory::desc wAny({k, n}, type, memory::format_tag::any);
  memory::desc wd({k, n}, type, memory::format_tag::ab);
  memory::desc cd({m, n}, type, memory::format_tag::ab);
  matmul primitive;
  std::unordered_map<int, memory> args;
  try {
    matmul::primitive_desc pd = describeMatmul(cpu, ad, wAny, cd);
    memory wUser(wd, cpu, w.data), wPacked(pd.weights_desc(), cpu);
    reorder(wUser, wPacked).execute(queue, wUser, wPacked);
    primitive = matmul(pd);
    args = {{DNNL_ARG_SRC, memory(ad, cpu, a.data)},
            {DNNL_ARG_WEIGHTS, wPacked},
            {DNNL_ARG_DST, memory(cd, cpu, c2.data)}};
  } catch (const dnnl::error &error) {
    // Of bf16 it has a product where the processor has AVX-512 only.
    if (!half || error.status != dnnl_unimplemented)
      throw;
  }
  const bool compared = bool(primitive);
  void *pointers[] = {a.data, ours.packed, c0.data};
  std::string name = std::string(half ? "bf16 " : "") + "M" +
                     std::to_string(m) + " K" + std::to_string(k) + " N" +
                     std::to_string(n);
  std::function<void()> sgemm = [&] {
    dnnl_sgemm('N', 'N', m, n, k, 1.0f, a.data, k, w.data, n, 0.0f, c1.data, n);
  };
  compare(
      name, 2.0 * m * k * n,
      [&] { concord_kernel_run(ours.kernel, pointers, ours.workspace); },
      half ? nullptr : sgemm,
      compared ? [&] { primitive.execute(queue, args); }
               : std::function<void()>());
  if (!compared)
    return;
  double error = 0;
  for (int64_t i = 0; half && i < m * n; ++i) {
    double x = fromBfloat(c0.data, i), y = fromBfloat(c2.data, i);
    error = std::max(error, std::fabs(x - y) / (1 + std::fabs(x)));
  }
  error = half ? error / 16 : worst(c0.data, c1.data, m * n);
  if (!(error <= 1e-3 * (half ? 1 : std::sqrt(double(k))))) {
    fprintf(stderr, "%s: results differ by %g\n", name.c_str(), error);
    exit(1);
  }
}

void batchShape(int64_t batch, int64_t m, int64_t k, int64_t n, bool transB) {
  using namespace dnnl;
  static engine cpu(engine::kind::cpu, 0);
  static stream queue(cpu);
  Buffer a(batch * m * k), w(batch * k * n), c0(batch * m * n),
      c1(batch * m * n), c2(batch * m * n);
  std::string text =
      "gemm astrides=[" + std::to_string(m * k) + "] batch=[" +
      std::to_string(batch) + "] bstrides=[" + std::to_string(k * n) +
      "] cstrides=[" + std::to_string(m * n) +
      "] dtype=f32 k=" + std::to_string(k) + " m=" + std::to_string(m) +
      " n=" + std::to_string(n) + (transB ? " transb=1" : "");
  OurKernel ours(text);
  memory::desc ad({batch, m, k}, memory::data_type::f32,
                  memory::format_tag::abc);
  memory::desc wd({batch, k, n}, memory::data_type::f32,
                  transB ? memory::format_tag::acb : memory::format_tag::abc);
  memory::desc cd({batch, m, n}, memory::data_type::f32,
                  memory::format_tag::abc);
  matmul::primitive_desc pd = describeMatmul(cpu, ad, wd, cd);
  memory am(ad, cpu, a.data), wm(wd, cpu, w.data), cm(cd, cpu, c2.data);
  matmul primitive(pd);
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SRC, am}, {DNNL_ARG_WEIGHTS, wm}, {DNNL_ARG_DST, cm}};
  void *pointers[] = {a.data, w.data, c0.data};
  std::string name = std::to_string(batch) + " x M" + std::to_string(m) + " K" +
                     std::to_string(k) + " N" + std::to_string(n) +
                     (transB ? " B^T" : "");
  compare(
      name, 2.0 * batch * m * k * n,
      [&] { concord_kernel_run(ours.kernel, pointers, ours.workspace); },
      [&] {
        for (int64_t b = 0; b < batch; ++b)
          dnnl_sgemm('N', transB ? 'T' : 'N', m, n, k, 1.0f, a.data + b * m * k,
                     k, w.data + b * k * n, transB ? k : n, 0.0f,
                     c1.data + b * m * n, n);
      },
      [&] { primitive.execute(queue, args); });
  if (worst(c0.data, c1.data, batch * m * n) > 1e-3 * std::sqrt(double(k))) {
    fprintf(stderr, "%s: results differ\n", name.c_str());
    exit(1);
  }
}

/// How often one execute of a oneDNN primitive allocates, and one of our runs.
void countAllocations() {
  using namespace dnnl;
  engine cpu(engine::kind::cpu, 0);
  stream queue(cpu);
  int64_t m = 128, k = 384, n = 384;
  Buffer a(m * k), w(k * n), c(m * n);
  primitive_attr attr;
  attr.set_scratchpad_mode(scratchpad_mode::user);
  memory::desc ad({m, k}, memory::data_type::f32, memory::format_tag::ab);
  memory::desc wd({k, n}, memory::data_type::f32, memory::format_tag::ab);
  memory::desc cd({m, n}, memory::data_type::f32, memory::format_tag::ab);
  matmul::primitive_desc pd = describeMatmul(cpu, ad, wd, cd, attr);
  memory scratch(pd.scratchpad_desc(), cpu);
  memory am(ad, cpu, a.data), wm(wd, cpu, w.data), cm(cd, cpu, c.data);
  matmul primitive(pd);
  std::unordered_map<int, memory> args = {{DNNL_ARG_SRC, am},
                                          {DNNL_ARG_WEIGHTS, wm},
                                          {DNNL_ARG_DST, cm},
                                          {DNNL_ARG_SCRATCHPAD, scratch}};
  std::vector<dnnl_exec_arg_t> raw;
  for (auto &[index, value] : args)
    raw.push_back({index, value.get()});
  for (int i = 0; i < 3; ++i)
    dnnl_primitive_execute(primitive.get(), queue.get(), int(raw.size()),
                           raw.data());
  long before = mallocCalls;
  for (int i = 0; i < 100; ++i)
    dnnl_primitive_execute(primitive.get(), queue.get(), int(raw.size()),
                           raw.data());
  printf("oneDNN matmul with user scratchpad: %.2f allocations per execute\n",
         double(mallocCalls - before) / 100);
  before = mallocCalls;
  for (int i = 0; i < 100; ++i)
    dnnl_sgemm('N', 'N', m, n, k, 1.0f, a.data, k, w.data, n, 0.0f, c.data, n);
  printf("dnnl_sgemm: %.2f allocations per call\n",
         double(mallocCalls - before) / 100);
  OurKernel ours("gemm dtype=f32 k=384 m=128 n=384");
  void *pointers[] = {a.data, w.data, c.data};
  before = mallocCalls;
  for (int i = 0; i < 100; ++i)
    concord_kernel_run(ours.kernel, pointers, ours.workspace);
  printf("concord gemm: %.2f allocations per run\n",
         double(mallocCalls - before) / 100);
}

} // namespace

// The counter for --allocs: every allocation of this process passes here.
extern "C" void *__libc_malloc(size_t);
extern "C" void *__libc_memalign(size_t, size_t);
extern "C" void *malloc(size_t size) {
  ++mallocCalls;
  return __libc_malloc(size);
}
extern "C" int posix_memalign(void **out, size_t align, size_t size) {
  ++mallocCalls;
  *out = __libc_memalign(align, size);
  return *out ? 0 : 12;
}

int main(int argc, char **argv) {
  std::string filter, json, type;
  for (int i = 1; i < argc; ++i) {
    std::string option = argv[i];
    if (option == "--allocs") {
      countAllocations();
      return 0;
    }
    if (option == "--filter" && i + 1 < argc)
      filter = argv[++i];
    else if (option == "--rounds" && i + 1 < argc)
      rounds = std::max(1, atoi(argv[++i]));
    else if (option == "--type" && i + 1 < argc &&
             (!strcmp(argv[i + 1], "f32") || !strcmp(argv[i + 1], "bf16")))
      type = argv[++i];
    else if (option == "--json" && i + 1 < argc)
      json = argv[++i];
    else {
      fprintf(stderr, "usage: bench_kernels [--filter TEXT] [--type f32|bf16] "
                      "[--rounds N] [--json FILE] [--allocs]\n");
      return 2;
    }
  }
  // oneDNN's threads are made before main: start again with one.
  const char *threads = getenv("OMP_NUM_THREADS");
  if (!threads || strcmp(threads, "1") != 0) {
    setenv("OMP_NUM_THREADS", "1", 1);
    execv("/proc/self/exe", argv);
    perror("bench_kernels: cannot start again with one thread");
    return 2;
  }
  const int64_t sizes[][2] = {{384, 384},  {384, 1536}, {1536, 384}, {768, 768},
                              {768, 3072}, {3072, 768}, {192, 384},  {384, 192},
                              {384, 768},  {4096, 4096}};
  auto wanted = [&](const std::string &name) {
    return (name + " ").find(filter + (filter.empty() ? "" : " ")) !=
           std::string::npos;
  };
  for (bool half : {false, true})
    for (auto [k, n] : sizes)
      for (int64_t m : {1, 2, 4, 8, 16, 32, 128, 256, 512, 1024})
        if ((type.empty() || type == (half ? "bf16" : "f32")) &&
            wanted("M" + std::to_string(m) + " K" + std::to_string(k) + " N" +
                   std::to_string(n)))
          weightShape(half, m, k, n);
  if (wanted("batch") && type != "bf16")
    for (int64_t batch : {12, 6}) {
      batchShape(batch, 128, 32, 128, true);
      batchShape(batch, 128, 32, 128, false);
      batchShape(batch, 128, 128, 32, false);
      batchShape(batch, 128, 64, 128, true);
      batchShape(batch, 128, 128, 64, false);
    }
  int below = 0;
  for (const Row &row : rows)
    below += row.oneDNN() < row.ours;
  printf("%zu shapes, %d below the floor of 1.0\n", rows.size(), below);
  if (!json.empty()) {
    FILE *file = fopen(json.c_str(), "w");
    if (!file)
      return 2;
    fprintf(file, "{\"rows\":[");
    for (size_t i = 0; i < rows.size(); ++i) {
      double ratio = rows[i].oneDNN() / rows[i].ours;
      fprintf(file,
              "%s{\"name\":\"gemm %s: oneDNN time / ours\",\"value\":%.4f,"
              "\"unit\":\"x\",\"floor\":1.0,\"ok\":%s}",
              i ? "," : "", rows[i].name.c_str(), ratio,
              ratio >= 1.0 ? "true" : "false");
    }
    fprintf(file, "]}\n");
    fclose(file);
  }
  return 0;
}
