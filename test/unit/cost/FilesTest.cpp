//===- FilesTest.cpp - Calibrations and topologies as files ---------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "concord/cost/Cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace concord::cost {
namespace {

using testing::HasSubstr;

TEST(Calibration, RoundTrip) {
  Machine machine = *builtinMachine("cpu");
  machine.name = "two cores";
  machine.validated = "8 B to 64 MiB, 2 ranks";
  machine.coresPerHost = 2;
  machine.updateSeconds = 7e-11;
  machine.flops = {
      {DType::F32, 1.17e11}, {DType::F64, 6e10}, {DType::BF16, 9e10}};
  machine.curves.push_back({plan::Kind::AllGather,
                            2,
                            "host",
                            {{512, 3e-7, 1e-12}, {UINT64_MAX, 9e-7, 2e-11}}});
  machine.forms.push_back({machine.curves[0], "flat", "latency"});
  std::string text = writeCalibration(machine), error;
  Machine again;
  ASSERT_TRUE(parseCalibration(text, "x", again, error)) << error;
  EXPECT_TRUE(again.calibrated);
  EXPECT_EQ(again.source, "x");
  EXPECT_EQ(again.name, machine.name);
  EXPECT_EQ(again.validated, machine.validated);
  EXPECT_EQ(again.flops[DType::F32], 1.17e11);
  EXPECT_EQ(again.flops[DType::BF16], 9e10);
  EXPECT_EQ(again.cacheBytes, machine.cacheBytes);
  EXPECT_EQ(again.coresPerHost, 2);
  EXPECT_NEAR(again.updateSeconds, 7e-11, 1e-17);
  ASSERT_EQ(again.curves.size(), 1u);
  EXPECT_EQ(again.curves[0].kind, plan::Kind::AllGather);
  ASSERT_EQ(again.curves[0].segments.size(), 2u);
  EXPECT_EQ(again.curves[0].segments[0].upTo, 512u);
  EXPECT_EQ(again.curves[0].segments[1].upTo, UINT64_MAX);
  EXPECT_NEAR(again.curves[0].segments[1].beta, 2e-11, 1e-18);
  ASSERT_EQ(again.forms.size(), 1u);
  EXPECT_EQ(again.forms[0].form, "flat");
  EXPECT_EQ(again.forms[0].objective, "latency");
  EXPECT_NEAR(secondsOf(again.forms[0].curve, 512), 3e-7 + 512e-12, 1e-15);
  EXPECT_NEAR(secondsOf(again.forms[0].curve, 1024), 9e-7 + 1024 * 2e-11,
              1e-15);
  EXPECT_EQ(writeCalibration(again), text);
}

struct Bad {
  const char *text, *message;
};

TEST(Calibration, Refusals) {
  for (Bad bad : std::initializer_list<Bad>{
           {"{", "cal.json: parse error at line 1, column 2"},
           {"[]", "has no key \"concord_calibration\""},
           {R"({"concord_calibration": 2})", "concord_calibration is 2"},
           {R"({"concord_calibration": 1, "flag_us": 3})",
            "the file has the unknown key \"flag_us\""},
           {R"({"concord_calibration": 1, "flops_per_second": {"f33": 1}})",
            "flops_per_second names the unknown type \"f33\""},
           {R"({"concord_calibration": 1, "flops_per_second": {"f32": -1}})",
            "flops_per_second.f32 is -1"},
           {R"({"concord_calibration": 1, "op_us": "1"})",
            "op_us is not a number"},
           {R"({"concord_calibration": 1, "op_us": 1e999})", ""},
           {R"({"concord_calibration": 1, "collectives": [{"kind": "allreduce",
                "ranks": 2, "segments": [{"alpha_us": 1,
                "beta_ns_per_byte": 1}]}]})",
            "collectives[0].kind names the unknown collective"},
           {R"({"concord_calibration": 1, "collectives": [{"kind": "reduce",
                "ranks": 2, "segments": [{"alpha_us": 1,
                "beta_ns_per_byte": 1}, {"alpha_us": 1,
                "beta_ns_per_byte": 1}]}]})",
            "collectives[0].segments[0] lacks \"up_to_bytes\""},
           {R"({"concord_calibration": 1, "memory":
                {"dram_core_bytes_per_second": 10,
                 "dram_node_bytes_per_second": 5}})",
            "less than what one core reaches alone"}}) {
    Machine machine;
    std::string error;
    EXPECT_FALSE(parseCalibration(bad.text, "cal.json", machine, error))
        << bad.text;
    EXPECT_THAT(error, HasSubstr("cal.json: "));
    EXPECT_THAT(error, HasSubstr(bad.message));
  }
}

TEST(Topology, LevelsOfACluster) {
  Machine machine;
  std::string error;
  ASSERT_TRUE(parseTopology(R"({
    "concord_topology": 1, "name": "big", "validated": "nowhere",
    "device": {"machine": "accelerator", "flops_per_second": {"bf16": 4e14}},
    "hosts": [{"name": "node", "count": 2048, "ranks": 8, "cores": 64, "nics": 8}],
    "inside": {"name": "nvl", "kind": "link", "bytes_per_second": 3e11, "latency_us": 2},
    "network": [
      {"name": "leaf", "bytes_per_second": 5e10, "latency_us": 5, "joins": 32},
      {"name": "spine", "ports": 128, "bytes_per_second": 5e10, "latency_us": 8}]
  })",
                            "big.json", machine, error))
      << error;
  EXPECT_EQ(machine.ranks, 16384);
  EXPECT_EQ(machine.coresPerHost, 64);
  EXPECT_EQ(machine.flops[DType::BF16], 4e14);
  ASSERT_EQ(machine.levels.size(), 3u);
  EXPECT_EQ(machine.levels[0].span, 8);
  EXPECT_FALSE(machine.levels[0].memory);
  EXPECT_EQ(machine.levels[1].ports, 8);
  EXPECT_EQ(machine.levels[1].span, 256);
  EXPECT_EQ(machine.levels[2].span, 0);
  EXPECT_EQ(machine.levels[1].blockOf(300), 1);
  EXPECT_EQ(machine.levels[2].blockOf(300), 0);
}

TEST(Topology, UnlikeHosts) {
  Machine machine;
  std::string error;
  ASSERT_TRUE(parseTopology(R"({
    "concord_topology": 1,
    "hosts": [{"ranks": 2, "cores": 2}, {"ranks": 3, "cores": 1}],
    "network": [{"bytes_per_second": 1e9, "latency_us": 30, "core_share": 0.2}]
  })",
                            "x", machine, error))
      << error;
  EXPECT_EQ(machine.ranks, 5);
  EXPECT_EQ(machine.coresPerHost, 1);
  EXPECT_TRUE(machine.levels[0].memory);
  EXPECT_EQ(machine.levels[0].blockOf(1), 0);
  EXPECT_EQ(machine.levels[0].blockOf(2), 1);
  EXPECT_EQ(machine.levels[0].blockOf(4), 1);
  EXPECT_EQ(machine.levels[1].coreShare, 0.2);
}

TEST(Topology, Refusals) {
  for (
      Bad bad : std::initializer_list<Bad>{
          {R"({"concord_topology": 1})", "lacks \"hosts\""},
          {R"({"concord_topology": 1, "hosts": []})",
           "not a list with entries"},
          {R"({"concord_topology": 1, "hosts": [{}]})",
           "hosts[0] lacks \"ranks\""},
          {R"({"concord_topology": 1, "hosts": [{"ranks": 2, "gpus": 1}]})",
           "hosts[0] has the unknown key \"gpus\""},
          {R"({"concord_topology": 1, "hosts": [{"ranks": 2, "count": 2}]})",
           "nothing joins 2 hosts"},
          {R"({"concord_topology": 1, "hosts": [{"ranks": 2, "count": 4}],
               "network": [{"name": "leaf", "bytes_per_second": 1, "latency_us": 1, "joins": 2}]})",
           "nothing joins 2 blocks of leaf"},
          {R"({"concord_topology": 1, "hosts": [{"ranks": 60000, "count": 60000}]})",
           "more than 65536 ranks"},
          {R"({"concord_topology": 1, "hosts": [{"ranks": 1}], "inside": {"kind": "bus"}})",
           "inside.kind is \"bus\""},
          {R"({"concord_topology": 1, "hosts": [{"ranks": 1}], "device": {"machine": "gpu"}})",
           "device.machine is \"gpu\""}}) {
    Machine machine;
    std::string error;
    EXPECT_FALSE(parseTopology(bad.text, "top.json", machine, error))
        << bad.text;
    EXPECT_THAT(error, HasSubstr("top.json: "));
    EXPECT_THAT(error, HasSubstr(bad.message));
  }
}

TEST(LoadMachine, WhatIsAskedFor) {
  auto folder = std::filesystem::temp_directory_path() /
                ("concord-cost-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder / "concord");
  ::setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  std::string path = defaultCalibrationPath(), error;
  // One per kind of processor: home directories are shared.
  EXPECT_THAT(path,
              testing::MatchesRegex((folder / "concord/calibration-").string() +
                                    "[A-Za-z0-9-]+\\.json"));
  Machine machine;
  ASSERT_TRUE(loadMachine("", "accelerator", machine, error)) << error;
  EXPECT_EQ(machine.name, "accelerator");
  EXPECT_THAT(describe(machine), HasSubstr("built-in"));
  std::ofstream(path) << R"({"concord_calibration": 1, "name": "here"})";
  ASSERT_TRUE(loadMachine("", "accelerator", machine, error)) << error;
  EXPECT_EQ(machine.name, "here");
  ASSERT_TRUE(loadMachine(path, "cpu", machine, error)) << error;
  EXPECT_EQ(machine.source, path);
  // A broken calibration is an error, not a reason to use other figures.
  std::ofstream(path) << R"({"concord_calibration": 1, "nam": "here"})";
  EXPECT_FALSE(loadMachine("", "cpu", machine, error));
  EXPECT_THAT(error, HasSubstr("unknown key \"nam\""));
  std::ofstream(path) << R"({"concord_topology": 1, "hosts": [{"ranks": 3}]})";
  ASSERT_TRUE(loadMachine(path, "cpu", machine, error)) << error;
  EXPECT_EQ(machine.ranks, 3);
  // A topology takes over what was measured beside it.
  std::ofstream((folder / "cal.json").string())
      << R"({"concord_calibration": 1, "op_us": 7})";
  std::ofstream(path) << R"({"concord_topology": 1, "hosts": [{"ranks": 3}],
                             "device": {"calibration": "../cal.json"}})";
  ASSERT_TRUE(loadMachine(path, "cpu", machine, error)) << error;
  EXPECT_DOUBLE_EQ(machine.opSeconds, 7e-6);
  std::filesystem::remove(folder / "cal.json");
  EXPECT_FALSE(loadMachine(path, "cpu", machine, error));
  EXPECT_THAT(error, HasSubstr("device.calibration: cannot read"));
  EXPECT_FALSE(loadMachine((folder / "no").string(), "cpu", machine, error));
  EXPECT_THAT(error, HasSubstr("cannot read"));
  std::filesystem::remove_all(folder);
}

} // namespace
} // namespace concord::cost
