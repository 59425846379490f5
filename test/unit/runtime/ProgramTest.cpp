//===- ProgramTest.cpp - Loading and running compiled programs ----------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The in-process API on a program written by hand: results, states, and every
// artefact that must be refused, on ranks as threads.
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"
#include "concord/plan.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <unistd.h>

using namespace concord::test;
namespace fs = std::filesystem;

namespace {

std::string readFile(const fs::path &path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

void writeFile(const fs::path &path, const std::string &data) {
  std::ofstream(path, std::ios::binary) << data;
}

/// A folder with program, other program and weights, gone with the test.
class Programs : public ::testing::Test {
protected:
  void SetUp() override {
    char name[] = "/tmp/concord-program-XXXXXX";
    folder = ::mkdtemp(name);
    fs::copy_file(TEST_PROGRAM_0, folder / "good.so");
    fs::copy_file(TEST_PROGRAM_1, folder / "other.so");
    writeFile(folder / "test.weights", weights());
  }
  void TearDown() override { fs::remove_all(folder); }

  /// Sections w#0, w#1 (12 floats: rank + 1) and shared#* (0.5).
  static std::string weights(bool goodHash = true) {
    std::string data(3 * 4096, '\0');
    for (int r = 0; r < 2; ++r)
      for (int i = 0; i < 12; ++i) {
        float value = float(r + 1);
        std::memcpy(&data[r * 4096 + i * 4], &value, 4);
      }
    float half = 0.5f;
    std::memcpy(&data[2 * 4096], &half, 4);
    auto hash = [&](size_t at, size_t bytes) {
      return concord::plan::toHex(concord::plan::sha256(
          std::as_bytes(std::span(data.data() + at, bytes))));
    };
    std::string header =
        "{\"__metadata__\":{\"sha256:w#0\":\"" + hash(goodHash ? 0 : 1, 48) +
        "\",\"sha256:shared#*\":\"" + hash(8192, 4) +
        "\"},\"w#0\":{\"dtype\":\"F32\",\"shape\":[12],\"data_offsets\":[0,48]}"
        ",\"w#1\":{\"dtype\":\"F32\",\"shape\":[12],\"data_offsets\":[4096,"
        "4144]"
        "},\"shared#*\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":["
        "8192,"
        "8196]}}";
    header.resize(4096 - 8, ' ');
    std::string file(8, '\0');
    uint64_t length = header.size();
    std::memcpy(file.data(), &length, 8);
    return file + header + data.substr(0, 8196);
  }

  /// The good program with one text put in place of another of equal length.
  void patched(const char *name, const std::string &from,
               const std::string &to) {
    std::string data = readFile(folder / "good.so");
    ASSERT_EQ(from.size(), to.size());
    size_t at = data.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    data.replace(at, from.size(), to);
    writeFile(folder / name, data);
  }

  /// Load on both ranks; every rank must fail with `status` and say `words`.
  void refused(const std::string &name0, const std::string &name1,
               int32_t status, const std::string &words, int verify = 0) {
    runRanks(2, [&](Rank &rank) {
      concord_program *program = nullptr;
      concord_program_options options{};
      options.struct_size = sizeof options;
      options.verify_weights = verify;
      std::string path = folder / (rank.rank ? name1 : name0);
      EXPECT_EQ(
          concord_program_load(rank.context, path.c_str(), &options, &program),
          status)
          << concord_last_error();
      EXPECT_NE(std::string(concord_last_error()).find(words),
                std::string::npos)
          << concord_last_error();
      EXPECT_EQ(program, nullptr);
      // The job goes on.
      EXPECT_OK(concord_barrier(rank.world, nullptr));
    });
  }

  fs::path folder;
};

} // namespace

TEST_F(Programs, RunsStepsWithBoundState) {
  runRanks(2, [&](Rank &rank) {
    concord_program *program;
    std::vector<std::array<int64_t, 3>> events;
    events.reserve(1000);
    concord_program_options options{};
    options.struct_size = sizeof options;
    options.verify_weights = 1;
    options.trace_user = &events;
    options.trace = [](void *user, uint32_t site, int32_t phase, int64_t time) {
      static_cast<std::vector<std::array<int64_t, 3>> *>(user)->push_back(
          {site, phase, time});
    };
    std::string path = folder / "good.so";
    ASSERT_OK(
        concord_program_load(rank.context, path.c_str(), &options, &program));
    concord_program_info info{};
    info.struct_size = sizeof info;
    ASSERT_OK(concord_program_info_query(program, &info));
    EXPECT_STREQ(info.name, "test");
    EXPECT_EQ(info.num_sites, 6u);
    EXPECT_EQ(info.weight_bytes, 52u);
    uint32_t inputs, outputs;
    ASSERT_OK(concord_program_num_inputs(program, &inputs));
    ASSERT_OK(concord_program_num_outputs(program, &outputs));
    EXPECT_EQ(inputs, 2u);
    EXPECT_EQ(outputs, 5u);
    concord_entry entry{};
    entry.struct_size = sizeof entry;
    ASSERT_OK(concord_program_output(program, 0, &entry));
    EXPECT_STREQ(entry.name, "gathered");
    EXPECT_EQ(entry.local_bytes, 96u);
    EXPECT_EQ(concord_program_output(program, 5, &entry),
              CONCORD_ERROR_INVALID_ARGUMENT);

    // x[i] = i + 10 * rank in a foreign buffer; scaled = x * (rank + 1) + 0.5
    float x[12], sum[12];
    auto scaled = [](int r, int i) {
      return float(i + 10 * r) * float(r + 1) + 0.5f;
    };
    for (int i = 0; i < 12; ++i)
      x[i] = float(i + 10 * rank.rank);
    void *past;
    ASSERT_OK(concord_program_bind_input(program, 0, x));
    ASSERT_OK(concord_program_bind_output(program, 1, sum));
    ASSERT_OK(concord_program_input_data(program, 1, &past));
    std::fill_n(static_cast<float *>(past), 5, 40.0f);
    ASSERT_OK(concord_program_bind_state(program, 1, 4));
    EXPECT_EQ(concord_program_bind_state(program, 1, 4),
              CONCORD_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(concord_program_bind_state(program, 0, 4),
              CONCORD_ERROR_INVALID_ARGUMENT);
    for (int s = 1; s <= 50; ++s) {
      ASSERT_OK(concord_program_step(program));
      void *data;
      ASSERT_OK(concord_program_output_data(program, 4, &data));
      ASSERT_EQ(static_cast<float *>(data)[4], 40.0f + float(s));
    }
    void *data;
    ASSERT_OK(concord_program_output_data(program, 0, &data));
    auto *gathered = static_cast<float *>(data);
    ASSERT_OK(concord_program_output_data(program, 2, &data));
    auto *moved = static_cast<float *>(data);
    ASSERT_OK(concord_program_output_data(program, 3, &data));
    auto *scattered = static_cast<float *>(data);
    for (int row = 0; row < 4; ++row)
      for (int column = 0; column < 3; ++column) {
        int i = row * 3 + column;
        for (int r = 0; r < 2; ++r)
          EXPECT_EQ(gathered[row * 6 + r * 3 + column], scaled(r, i));
        EXPECT_EQ(sum[i], scaled(0, i) + scaled(1, i));
        EXPECT_EQ(moved[i], scaled(1 - rank.rank, i));
        EXPECT_EQ(scattered[i], 2 * scaled(rank.rank, i));
      }
    // Begin, return and end of four issues, and where the one that was started
    // is waited for.
    EXPECT_EQ(events.size(), 50u * (4 * 3 + 1));
    const char *json;
    ASSERT_OK(concord_program_plan_json(program, &json));
    EXPECT_NE(std::strstr(json, "exchange/send"), nullptr);
    EXPECT_OK(concord_program_unload(program));
  });
}

TEST_F(Programs, MissingAndForeignFiles) {
  writeFile(folder / "text.so", "this is not a program");
  refused("none.so", "none.so", CONCORD_ERROR_NOT_FOUND, "none.so");
  refused("text.so", "text.so", CONCORD_ERROR_CORRUPT, "text.so");
  // One rank's failure is everybody's, and named.
  runRanks(2, [&](Rank &rank) {
    concord_program *program;
    std::string path = folder / (rank.rank ? "none.so" : "good.so");
    EXPECT_EQ(
        concord_program_load(rank.context, path.c_str(), nullptr, &program),
        CONCORD_ERROR_NOT_FOUND);
    if (rank.rank == 0) {
      EXPECT_NE(std::strstr(concord_last_error(), "rank 1 could not load"),
                nullptr)
          << concord_last_error();
    }
  });
}

TEST_F(Programs, WrongWorldAbiAndCpu) {
  patched("world.so", "\"world\":2", "\"world\":3");
  refused("world.so", "world.so", CONCORD_ERROR_WRONG_WORLD, "3 ranks");
  patched("abi.so", "\"abi\":1", "\"abi\":9");
  refused("abi.so", "abi.so", CONCORD_ERROR_VERSION_MISMATCH, "version 9");
  // With its key: the name alone may be that of a library, ld-linux-aarch64.so.
  std::string other = TEST_CPU;
  other.back() = '9';
  const std::string key = "\"target_cpu\":\"";
  patched("cpu.so", key + TEST_CPU, key + other);
  refused("cpu.so", "cpu.so", CONCORD_ERROR_WRONG_CPU, other);
}

// Issuers that have an order are in test/system/gate.
TEST_F(Programs, IssuersThatShareADomainAreRefused) {
  fs::copy_file(TEST_PROGRAM_2, folder / "hold.so");
  refused("hold.so", "hold.so", CONCORD_ERROR_PLAN,
          "'test' and 'second' both issue on domain 'tp'");
}

TEST_F(Programs, DamagedPlansAndMetadata) {
  patched("plan.so", "CPLN", "CPLX");
  refused("plan.so", "plan.so", CONCORD_ERROR_CORRUPT, "plan table");
  patched("digest.so", "exchange/send", "exchange/sent");
  refused("digest.so", "digest.so", CONCORD_ERROR_CORRUPT, "digest");
  patched("meta.so", "\"inputs\":[{", "\"inputs\":[[");
  refused("meta.so", "meta.so", CONCORD_ERROR_CORRUPT, "not JSON");
  patched("type.so", "\"dtype\":\"F32\"", "\"dtype\":\"F99\"");
  refused("type.so", "type.so", CONCORD_ERROR_CORRUPT, "dtype");
  patched("huge.so", "\"shape\":[5],", "\"shape\":[-],");
  refused("huge.so", "huge.so", CONCORD_ERROR_CORRUPT, "not JSON");
}

TEST_F(Programs, DifferentPlansAreBisected) {
  refused("good.so", "other.so", CONCORD_ERROR_PLAN_DIFFERS,
          "at operation 1, here site 1 of program 'test', all_reduce");
}

TEST_F(Programs, DamagedWeights) {
  std::string good = weights();
  auto with = [&](const std::string &data, const char *words, int verify = 0) {
    writeFile(folder / "test.weights", data);
    refused("good.so", "good.so", CONCORD_ERROR_CORRUPT, words, verify);
  };
  with(good.substr(0, good.size() - 1), "truncated");
  with(good.substr(0, 5000), "truncated");
  with(good.substr(0, 5), "truncated");
  with(good.substr(0, 2000), "longer than the file");
  std::string header = good;
  header[8] = 'x';
  with(header, "not JSON");
  std::string length = good;
  std::memset(length.data(), 0xff, 8);
  with(length, "longer than the file");
  std::string renamed = good;
  renamed[renamed.find("\"shared#*\":{") + 1] = 'S';
  with(renamed, "no section 'shared'");
  std::string shorter = good;
  shorter.replace(shorter.find("[8192,8196]"), 11, "[8192,8194]");
  with(shorter, "belong together");
  std::string moved = good;
  moved.replace(moved.find("[8192,8196]"), 11, "[8191,8195]");
  with(moved, "page");
  writeFile(folder / "test.weights", weights(false));
  runRanks(2, [&](Rank &rank) {
    concord_program *program;
    std::string path = folder / "good.so";
    concord_program_options options{};
    options.struct_size = sizeof options;
    options.verify_weights = 1;
    EXPECT_EQ(
        concord_program_load(rank.context, path.c_str(), &options, &program),
        CONCORD_ERROR_CORRUPT);
    EXPECT_NE(std::strstr(concord_last_error(), "SHA-256"), nullptr);
  });
  fs::remove(folder / "test.weights");
  refused("good.so", "good.so", CONCORD_ERROR_NOT_FOUND, "beside the program");
}

/// Weights first, then traffic: what a rank that has joined cannot load, nobody
/// runs.
TEST_F(Programs, AGrownJobRunsOnceAllHaveTheirWeights) {
  fs::create_directory(folder / "cut");
  fs::copy_file(folder / "good.so", folder / "cut" / "good.so");
  writeFile(folder / "cut" / "test.weights", weights().substr(0, 5000));
  concord_unique_id id;
  ASSERT_OK(concord_unique_id_create(&id));
  auto both = [&](concord_context *context, const fs::path &first) {
    concord_program *program = nullptr;
    std::string path = first / "good.so";
    EXPECT_EQ(concord_program_load(context, path.c_str(), nullptr, &program),
              CONCORD_ERROR_CORRUPT);
    EXPECT_NE(std::strstr(concord_last_error(), "truncated"), nullptr)
        << concord_last_error();
    ASSERT_EQ(program, nullptr);
    path = folder / "good.so";
    ASSERT_OK(concord_program_load(context, path.c_str(), nullptr, &program));
    EXPECT_OK(concord_program_step(program));
    EXPECT_OK(concord_program_unload(program));
  };
  std::thread joiner([&] {
    concord_context_config config{};
    config.struct_size = sizeof config;
    config.unique_id = &id;
    config.rank = 1;
    config.world = 2;
    concord_context *context;
    ASSERT_OK(concord_context_create(&config, &context));
    both(context, folder / "cut");
    EXPECT_OK(concord_context_finalize(context));
  });
  runRanks(1, [&](Rank &rank) {
    concord_comm *grown;
    concord_context *context;
    ASSERT_OK(concord_comm_grow(rank.world, 2, &id, &grown));
    ASSERT_OK(concord_comm_context(grown, &context));
    both(context, folder);
    EXPECT_OK(concord_comm_destroy(grown));
  });
  joiner.join();
}

TEST_F(Programs, MutatedWeightHeadersNeverCrash) {
  std::string good = weights();
  unsigned seed = 5;
  auto random = [&] { return seed = seed * 1664525 + 1013904223, seed >> 8; };
  for (int round = 0; round < 60; ++round) {
    std::string data = good;
    for (int n = 0; n < 3; ++n)
      data[random() % 400] = char(random());
    writeFile(folder / "test.weights", data);
    runRanks(2, [&](Rank &rank) {
      concord_program *program = nullptr;
      std::string path = folder / "good.so";
      int32_t status =
          concord_program_load(rank.context, path.c_str(), nullptr, &program);
      if (status == CONCORD_OK) {
        EXPECT_OK(concord_program_unload(program));
      } else {
        EXPECT_EQ(status, CONCORD_ERROR_CORRUPT) << concord_last_error();
      }
    });
  }
}
