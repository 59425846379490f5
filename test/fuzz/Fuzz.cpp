//===- Fuzz.cpp - Fuzz targets as tests -----------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   fuzz_NAME [-runs=N] [-seed=S]   the seeds, then N mutations of them
//   fuzz_NAME [-seed=S] -only=I     mutation I alone, as a failure names it
//   fuzz_NAME FILE...               these inputs, as libFuzzer leaves them
//   fuzz_NAME -write-seeds=FOLDER   the seeds as files, for libFuzzer; in a
//                                   libFuzzer program this is all that is added
//
// An input that takes longer than a minute, and memory beyond 2 GiB where no
// sanitizer is in the way, end the program.
//
//===----------------------------------------------------------------------===//

#include "Fuzz.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace concord;

namespace {

uint64_t accepted = 0;
std::string reason; ///< of the latest refusal

std::string read(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int writeSeeds(const std::string &folder) {
  std::filesystem::create_directories(folder);
  size_t number = 0;
  for (const std::string &seed : fuzz::seeds()) {
    std::ofstream file(folder + "/seed" + std::to_string(number++),
                       std::ios::binary);
    file << seed;
    if (!file.flush()) {
      std::fprintf(stderr, "%s: cannot be written\n", folder.c_str());
      return 1;
    }
  }
  return 0;
}

/// The value behind `flag` in an argument, or null.
const char *valueOf(const char *argument, const char *flag) {
  size_t length = std::strlen(flag);
  return std::strncmp(argument, flag, length) == 0 ? argument + length
                                                   : nullptr;
}

} // namespace

void fuzz::accept() { ++accepted; }
void fuzz::refuse(std::string_view why) { reason = why; }

std::vector<std::string> fuzz::filesUnder(const std::string &path,
                                          std::string_view suffix, size_t most,
                                          std::string_view before) {
  namespace fs = std::filesystem;
  std::vector<fs::path> paths;
  if (fs::is_regular_file(path))
    paths.push_back(path);
  else
    for (const auto &entry : fs::recursive_directory_iterator(path))
      if (entry.is_regular_file() && entry.file_size() <= most &&
          entry.path().string().ends_with(suffix))
        paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> result;
  for (const fs::path &each : paths)
    result.push_back(std::string(before) + read(each));
  return result;
}

fuzz::MemoryFile::MemoryFile(std::string_view bytes)
    : fd(::memfd_create("fuzz", MFD_CLOEXEC)),
      name("/proc/self/fd/" + std::to_string(fd)) {
  if (fd < 0 ||
      ::write(fd, bytes.data(), bytes.size()) != ssize_t(bytes.size())) {
    std::perror("memory file");
    std::abort();
  }
}

fuzz::MemoryFile::~MemoryFile() { ::close(fd); }

#ifdef CONCORD_LIBFUZZER

extern "C" int LLVMFuzzerInitialize(int *argc, char ***argv) {
  for (int i = 1; i < *argc; ++i)
    if (const char *folder = valueOf((*argv)[i], "-write-seeds="))
      std::exit(writeSeeds(folder));
  return 0;
}

#else

namespace {

/// What a signal says of the input that it met.
char position[128];

void onSignal(int signal) {
  const char *what = signal == SIGALRM ? "runs for more than a minute: "
                                       : "ends the program: ";
  [[maybe_unused]] ssize_t n = ::write(2, what, std::strlen(what));
  n = ::write(2, position, std::strlen(position));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

using Random = std::mt19937_64;

size_t below(Random &random, size_t limit) { return random() % limit; }

/// One change. `seeds` give material for splices.
void change(std::string &bytes, const std::vector<std::string> &seeds,
            Random &random) {
  static constexpr const char *kNumbers[] = {"0",
                                             "-1",
                                             "1",
                                             "255",
                                             "65536",
                                             "2147483647",
                                             "4294967295",
                                             "4294967296",
                                             "9223372036854775807",
                                             "18446744073709551615",
                                             "99999999999999999999",
                                             "1e308",
                                             "-0.0",
                                             "nan"};
  static constexpr char kSigns[] = "()[]{}<>,;:=%#@\"'\\/*-+. \n\t0x";
  static constexpr uint64_t kWords[] = {
      0,          1,    ~uint64_t(0),      uint64_t(1) << 63,
      0x7fffffff, 4096, uint64_t(1) << 32, 0x7f7f7f7f7f7f7f7f};
  if (bytes.empty())
    bytes = "x";
  size_t at = below(random, bytes.size());
  switch (below(random, 11)) {
  case 0:
    bytes[at] = char(random());
    break;
  case 1:
    bytes[at] = char(bytes[at] ^ 1 << below(random, 8));
    break;
  case 2:
    bytes[at] = kSigns[below(random, sizeof kSigns - 1)];
    break;
  case 3:
    bytes.erase(at, 1 + below(random, 20));
    break;
  case 4:
    bytes.insert(
        at, bytes.substr(below(random, bytes.size()), 1 + below(random, 40)));
    break;
  case 5:
    bytes.resize(at);
    break;
  case 6: { // a number as bytes
    uint64_t word = kWords[below(random, std::size(kWords))];
    size_t n = size_t(1) << below(random, 4);
    if (below(random, 2))
      at = at / 8 * 8;
    n = std::min(n, bytes.size() - at);
    std::memcpy(bytes.data() + at, &word, n);
    break;
  }
  case 7: { // a number as text, where one stands
    at = bytes.find_first_of("0123456789", at);
    if (at == std::string::npos)
      break;
    size_t end = bytes.find_first_not_of("0123456789", at);
    end = std::min(end, bytes.size());
    bytes.replace(at, end - at, kNumbers[below(random, std::size(kNumbers))]);
    break;
  }
  case 8: { // a piece of another one
    const std::string &other = seeds[below(random, seeds.size())];
    if (!other.empty())
      bytes.insert(at, other.substr(below(random, other.size()),
                                    1 + below(random, 200)));
    break;
  }
  case 9: { // two places change their places' contents
    size_t n = 1 + below(random, 16), to = below(random, bytes.size());
    bytes.replace(to, std::min(n, bytes.size() - to), bytes.substr(at, n));
    break;
  }
  default: // deep, or long
    if (below(random, 16) == 0)
      bytes.insert(at, std::string(size_t(1) << below(random, 17), bytes[at]));
    else
      bytes.insert(at, 1 + below(random, 8), bytes[at]);
  }
}

void run(const std::string &input) {
  // A copy of the exact size, so that a sanitizer sees its end.
  std::vector<uint8_t> bytes(input.begin(), input.end());
  ::alarm(60);
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
  ::alarm(0);
}

void limitMemory() {
#if !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer)
  rlimit limit{};
  ::getrlimit(RLIMIT_DATA, &limit);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, rlim_t(2) << 30);
  ::setrlimit(RLIMIT_DATA, &limit);
#endif
}

} // namespace

int main(int argc, char **argv) {
  uint64_t runs = 1000, seed = 1;
  int64_t only = -1;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    if (const char *folder = valueOf(argv[i], "-write-seeds="))
      return writeSeeds(folder);
    if (const char *text = valueOf(argv[i], "-runs="))
      runs = std::strtoull(text, nullptr, 10);
    else if (const char *text = valueOf(argv[i], "-seed="))
      seed = std::strtoull(text, nullptr, 10);
    else if (const char *text = valueOf(argv[i], "-only="))
      only = std::strtoll(text, nullptr, 10);
    else if (argv[i][0] == '-') {
      std::fprintf(stderr, "%s: no option %s\n", argv[0], argv[i]);
      return 2;
    } else
      files.push_back(argv[i]);
  }
  for (int signal : {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL})
    std::signal(signal, onSignal);
  limitMemory();
  for (const std::string &file : files) {
    std::snprintf(position, sizeof position, "%s\n", file.c_str());
    run(read(file));
  }
  if (!files.empty())
    return 0;
  const std::vector<std::string> all = fuzz::seeds();
  if (all.empty()) {
    std::fprintf(stderr, "%s: has no seeds\n", argv[0]);
    return 1;
  }
  int wrong = 0;
  for (size_t i = 0; only < 0 && i < all.size(); ++i) {
    std::snprintf(position, sizeof position, "seed %zu\n", i);
    uint64_t before = accepted;
    run(all[i]);
    if (accepted == before) {
      std::fprintf(stderr, "seed %zu is not accepted: %s\n", i, reason.c_str());
      ++wrong;
    }
  }
  accepted = 0;
  for (uint64_t i = only < 0 ? 0 : uint64_t(only);
       i < (only < 0 ? runs : uint64_t(only) + 1); ++i) {
    std::snprintf(position, sizeof position, "-seed=%llu -only=%llu\n",
                  (unsigned long long)seed, (unsigned long long)i);
    // By its number, so that each can be had alone.
    Random random(seed * 1000003 + i);
    std::string input = all[below(random, all.size())];
    for (size_t n = 1 + below(random, 4); n; --n)
      change(input, all, random);
    run(input);
  }
  std::printf("%zu seeds, %llu mutations, %llu of them accepted\n", all.size(),
              (unsigned long long)(only < 0 ? runs : 1),
              (unsigned long long)accepted);
  return wrong ? 1 : 0;
}

#endif
