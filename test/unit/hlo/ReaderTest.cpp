//===- ReaderTest.cpp - The reader of HLO text ----------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Texts written for these tests, mutations of them, and the shared models where
// they are there.
//
//===----------------------------------------------------------------------===//

#include "concord/hlo/Module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

using namespace concord::hlo;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

namespace {

const char *const kTraining = R"(// a comment before the header
HloModule tiny, is_scheduled=true, num_partitions=4, replica_count=2, entry_computation_layout={(f32[4,8]{1,0})->f32[4,8]{1,0}}

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}

%body (state: (s32[], f32[4,8])) -> (s32[], f32[4,8]) {
  %state = (s32[], f32[4,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %one = s32[] constant(1)
  %next = s32[] add(%i, %one)
  %x = f32[4,8]{1,0} get-tuple-element(%state), index=1
  %ar = f32[4,8]{1,0} all-reduce(%x), channel_id=3, replica_groups=[2,4]<=[8], use_global_device_ids=true, to_apply=%sum
  ROOT %out = (s32[], f32[4,8]{1,0}) tuple(%next, %ar)
}

%more (state.1: (s32[], f32[4,8])) -> pred[] {
  %state.1 = (s32[], f32[4,8]{1,0}) parameter(0)
  %i.1 = s32[] get-tuple-element(%state.1), index=0
  %ten = s32[] constant(10)
  ROOT %lt = pred[] compare(%i.1, %ten), direction=LT
}

ENTRY %main (p: f32[4,8]) -> f32[4,8] {
  %p = f32[4,8]{1,0:T(8,128)} parameter(0), sharding={devices=[4,1]<=[4]}, metadata={op_name="x, \"y\" }"}
  %zero = s32[] constant(0)
  %big = f32[2,2]{1,0} constant({ { 1, 2 }, /*row*/ { 3, 4 } })
  %init = (s32[], /*index=1*/f32[4,8]{1,0}) tuple(s32[] %zero, f32[4,8]{1,0} %p)
  %loop = (s32[], f32[4,8]{1,0}) while(%init), condition=%more, body=%body
  %ags = (f32[4,8]{1,0}, f32[16,8]{1,0}) all-gather-start(%p), dimensions={0}, replica_groups={{0,1,2,3},{4,5,6,7}}, channel_id=1, use_global_device_ids=true
  %agd = f32[16,8]{1,0} all-gather-done(%ags), control-predecessors={%zero}
  %dyn = s32[<=10,2]{1,0} custom-call(), custom_call_target="Pad, (not) {closed"
  %w = f32[8,16]{1,0} broadcast(%zero), dimensions={}
  %dot = f32[16,16]{1,0} dot(%agd, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT %r = f32[4,8]{1,0} get-tuple-element(%loop), index=1
}
)";

std::string messageOf(const std::string &text) {
  try {
    parse(text, "t.hlo");
  } catch (const Error &error) {
    return error.what();
  }
  return "";
}

std::string inEntry(const std::string &body) {
  return "HloModule m\n\nENTRY e {\n" + body + "}\n";
}

const Instruction &named(const Module &module, std::string_view name) {
  for (const Computation &computation : module.computations)
    for (const Instruction &op : computation.instructions)
      if (op.name == name)
        return op;
  throw std::runtime_error("no instruction " + std::string(name));
}

} // namespace

TEST(HloReader, ReadsTheModule) {
  Module module = parse(kTraining, "t.hlo");
  EXPECT_EQ(module.name, "tiny");
  EXPECT_EQ(module.numPartitions, 4);
  EXPECT_EQ(module.replicaCount, 2);
  EXPECT_EQ(module.attribute("is_scheduled"), "true");
  ASSERT_EQ(module.computations.size(), 4u);
  EXPECT_EQ(module.entry, 3u);
  const Computation &entry = module.computations[3];
  EXPECT_EQ(entry.instructions[entry.root].name, "r");
  EXPECT_EQ(entry.parameters.size(), 1u);
}

TEST(HloReader, ReadsShapes) {
  Module module = parse(kTraining, "t.hlo");
  EXPECT_THAT(named(module, "p").shape.dims, ElementsAre(4, 8));
  EXPECT_THAT(named(module, "dyn").shape.dims, ElementsAre(10, 2));
  const Shape &tuple = named(module, "ags").shape;
  ASSERT_EQ(tuple.kind, Shape::Kind::Tuple);
  EXPECT_THAT(tuple.elements[1].dims, ElementsAre(16, 8));
  EXPECT_EQ(tuple.numBytes(), 4u * 8 * 4 + 16 * 8 * 4);
}

TEST(HloReader, ReadsOperandsWithAndWithoutTheirTypes) {
  Module module = parse(kTraining, "t.hlo");
  EXPECT_EQ(named(module, "init").operands.size(), 2u);
  Module plain = parse(
      inEntry(
          "  a = f32[2]{0} parameter(0)\n"
          "  b = (f32[2]{0}, f32[2]{0}) tuple(a, f32[2]{0} a)\n"
          "  ROOT c = (f32[2]{0}, f32[2]{0}) copy((f32[2]{0}, f32[2]{0}) b)\n"),
      "t.hlo");
  EXPECT_THAT(named(plain, "b").operands, ElementsAre(0, 0));
  EXPECT_THAT(named(plain, "c").operands, ElementsAre(1));
}

TEST(HloReader, KeepsAttributesAsWritten) {
  Module module = parse(kTraining, "t.hlo");
  EXPECT_EQ(named(module, "p").attribute("metadata"),
            R"({op_name="x, \"y\" }"})");
  EXPECT_EQ(named(module, "ar").attribute("replica_groups"), "[2,4]<=[8]");
  EXPECT_EQ(named(module, "dyn").attribute("custom_call_target"),
            "\"Pad, (not) {closed\"");
  EXPECT_EQ(named(module, "ar").attribute("none"), "");
}

TEST(HloReader, ABodyMayEndBehindAnAttribute) {
  Module module = parse("HloModule m\nENTRY e {\n  a = f32[4] parameter(0)\n"
                        "  ROOT r = pred[4] compare(a, a), direction=LT }\n",
                        "t.hlo");
  EXPECT_EQ(
      module.computations.back().instructions.back().attribute("direction"),
      "LT");
}

TEST(HloReader, ResolvesCalls) {
  Module module = parse(kTraining, "t.hlo");
  EXPECT_THAT(named(module, "loop").called, ElementsAre(2, 1));
  EXPECT_THAT(named(module, "ar").called, ElementsAre(0));
  Module branches = parse(
      "HloModule m\n\nx { ROOT a = f32[] parameter(0)\n}\ny { ROOT a = f32[] "
      "parameter(0)\n}\n"
      "ENTRY e {\n i = s32[] parameter(0)\n f = f32[] parameter(1)\n"
      " ROOT c = f32[] conditional(i, f, f), branch_computations={%x, %y}\n}\n",
      "t.hlo");
  EXPECT_THAT(named(branches, "c").called, ElementsAre(0, 1));
}

TEST(HloReader, GroupsExplicitAndIota) {
  using V = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(parseGroups("{{0,1},{2,3}}"), (V{{0, 1}, {2, 3}}));
  EXPECT_EQ(parseGroups("{}"), V{});
  EXPECT_EQ(parseGroups("[2,4]<=[8]"), (V{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(parseGroups("[4,2]<=[2,4]T(1,0)"),
            (V{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(parseGroups("[2,4]<=[2,2,2]T(1,0,2)"),
            (V{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  for (const char *bad :
       {"", "{", "{{0,1}", "{{0 1}}", "[2,4]", "[2,4]<=[7]",
        "[2,4]<=[2,4]T(0,0)", "[2,4]<=[2,4]T(0,2)", "[2,4]<=[8]x", "[8]<=[8]",
        "[0,4]<=[0]", "{{0}}x", "[1048576,1048576]<=[1048576,1048576]",
        "{{99999999999999999999}}"})
    EXPECT_THROW(parseGroups(bad), Error) << bad;
}

TEST(HloReader, SameParts) {
  using V = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(sameParts("{devices=[2,2]<=[4]}"), (V{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(sameParts("{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
            (V{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(sameParts("{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
            (V{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // Devices of a manual axis hold their own; copies are last in the list.
  EXPECT_EQ(sameParts("{devices=[1,2,2]<=[4] last_tile_dims={manual, "
                      "replicated}}"),
            (V{{0, 1}, {2, 3}}));
  EXPECT_EQ(sameParts("{devices=[2,2]0,2,1,3 last_tile_dim_replicate}"),
            (V{{0, 2}, {1, 3}}));
  for (const char *bare : {"", "{replicated}", "{manual}", "{maximal device=3}",
                           "{{replicated},{manual}}"})
    EXPECT_EQ(sameParts(bare), V{}) << bare;
  for (const char *bad :
       {"{devices=[2,2]<=[8]}", "{devices=[2,2]0,1,2}", "{devices=[0]<=[0]}",
        "{devices=[2]<=[2] last_tile_dims={manual, replicated}}",
        "{devices=[2]<=[2] last_tile_dims={odd}}", "{devices=[4]<=[2,2]T(0)}"})
    EXPECT_THROW(sameParts(bad), Error) << bad;
}

TEST(HloReader, GroupsAlongMeshAxes) {
  using V = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(parseGroups("mesh['a'=2,'b'=4] {'b'}"),
            (V{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(parseGroups("mesh['a'=2,'b'=4] {'a'}"),
            (V{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  // In the order in which they are listed.
  EXPECT_EQ(parseGroups("mesh['a'=2,'b'=2] {'b','a'}"), (V{{0, 2, 1, 3}}));
  EXPECT_EQ(parseGroups("mesh[a=2,b=2] {a,b}"), (V{{0, 1, 2, 3}}));
  EXPECT_EQ(parseGroups("mesh['a'=2,'b'=1] {'b'}"), (V{{0}, {1}}));
  EXPECT_EQ(parseGroups("mesh['a'=2] {}"), (V{{0}, {1}}));
  // Parts of axes: 8 seen as [2, 2, 2].
  EXPECT_EQ(parseGroups("mesh['a'=8] {'a':(2)2}"),
            (V{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(parseGroups("mesh['a'=8] {'a':(4)2,'a':(1)2}"),
            (V{{0, 4, 1, 5}, {2, 6, 3, 7}}));
  EXPECT_EQ(parseGroups("mesh['a'=2,'b'=2], device_ids=(3,2,1,0) {'b'}"),
            (V{{3, 2}, {1, 0}}));
  EXPECT_EQ(
      parseGroups("mesh['a'=4,'b'=2], device_ids=([2,2,2]T(0,2,1)) {'a':(2)2}"),
      (V{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  for (const char *bad :
       {"mesh[", "mesh[] {}", "mesh['a'=2]", "mesh['a'=2] {'b'}",
        "mesh['a'=2] {'a','a'}", "mesh['a'=0] {'a'}", "mesh['a'=4] {'a':(3)2}",
        "mesh['a'=8] {'a':(1)4,'a':(2)2}", "mesh['a'=8] {'a':(2)2,'a':(1)4}",
        "mesh['a'=4], device_ids=(0,1) {'a'}", "mesh['a'=2] {'a'} x",
        "mesh['a'=4], device_ids=([4]T(1)) {'a'}", "mesh['a=2] {'a'}",
        "mesh['a'=1048576,'b'=1048576] {'a'}"})
    EXPECT_THROW(parseGroups(bad), Error) << bad;
  // The comma before the device ids does not end the attribute.
  Module module =
      parse("HloModule m\n\nENTRY e { x = f32[8] parameter(0)\n"
            " ROOT y = f32[8] all-to-all(x), channel_id=1, "
            "replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}, "
            "dimensions={0}\n}\n",
            "t.hlo");
  const Instruction &op = module.computations[0].instructions[1];
  EXPECT_EQ(parseGroups(op.attribute("replica_groups")), (V{{0, 2}, {1, 3}}));
  EXPECT_EQ(op.attribute("dimensions"), "{0}");
  EXPECT_TRUE(op.attribute("device_ids").empty());
}

TEST(HloReader, Costs) {
  Module module = parse(kTraining, "t.hlo");
  const Computation &entry = module.computations[3];
  for (uint32_t i = 0; i < entry.instructions.size(); ++i) {
    Cost cost = costOf(module, 3, i);
    if (entry.instructions[i].name == "dot") {
      EXPECT_EQ(cost.flops, 2u * 16 * 16 * 8);
      EXPECT_EQ(cost.bytesRead, (16u * 8 + 8 * 16) * 4);
      EXPECT_EQ(cost.bytesWritten, 16u * 16 * 4);
    }
    if (entry.instructions[i].name == "w") {
      EXPECT_EQ(cost.flops, 0u);
    }
  }
  Module fused = parse(
      "HloModule m\n\nf { a = f32[8] parameter(0)\n b = f32[8] add(a, a)\n"
      " ROOT c = f32[8] multiply(b, a)\n}\n"
      "ENTRY e { x = f32[8] parameter(0)\n"
      " ROOT y = f32[8] fusion(x), kind=kLoop, calls=f\n}\n",
      "t.hlo");
  EXPECT_EQ(costOf(fused, 1, 1).flops, 16u);
  EXPECT_EQ(costOf(fused, 1, 1).bytesRead, 32u);
}

TEST(HloReader, AddsControlEdgesAndNothingElse) {
  Module module = parse(kTraining, "t.hlo");
  EXPECT_EQ(addControlEdges(module, {}), kTraining);
  auto indexOf = [&](std::string_view name) {
    const auto &list = module.computations[3].instructions;
    for (uint32_t i = 0; i < list.size(); ++i)
      if (list[i].name == name)
        return i;
    return kNone;
  };
  std::string text =
      addControlEdges(module, {{3, indexOf("loop"), indexOf("ags")},
                               {3, indexOf("loop"), indexOf("agd")},
                               {3, indexOf("zero"), indexOf("agd")}});
  Module again = parse(text, "t.hlo");
  EXPECT_EQ(named(again, "ags").attribute("control-predecessors"), "{%loop}");
  // An entry that is there already is kept and not repeated.
  EXPECT_EQ(named(again, "agd").attribute("control-predecessors"),
            "{%zero, %loop}");
  std::string without = text;
  for (const std::string added : {", control-predecessors={%loop}", ", %loop"})
    without.erase(without.find(added), added.size());
  EXPECT_EQ(without, kTraining);
}

TEST(HloReader, ErrorsSayWhere) {
  EXPECT_THAT(messageOf("module x"),
              HasSubstr("t.hlo:1:1: expected 'HloModule'"));
  EXPECT_THAT(messageOf(inEntry("  a = f32[2] add(b, b)\n")),
              HasSubstr("t.hlo:4:18: operand 'b' is not defined"));
  EXPECT_THAT(messageOf(inEntry("  a = g32[2] add()\n")),
              HasSubstr("t.hlo:4:7: expected a shape"));
  EXPECT_THAT(messageOf(inEntry(
                  "  a = f32[] parameter(0)\n  a = f32[] parameter(1)\n")),
              HasSubstr("t.hlo:5:3: 'a' is defined twice"));
  EXPECT_THAT(messageOf(inEntry("  a = f32[] parameter(1)\n")),
              HasSubstr("lacks parameter 0"));
  EXPECT_THAT(
      messageOf(inEntry(
          "  a = f32[] constant(1)\n  b = f32[] copy(a), to_apply=%q\n")),
      HasSubstr("computation 'q' is not defined"));
  EXPECT_THAT(messageOf(inEntry("  a = f32[] constant(1), x={[1}\n")),
              HasSubstr("unexpected '}'"));
  EXPECT_THAT(messageOf(inEntry("  a = f32[] constant(1), x=\"open\n")),
              HasSubstr("string does not end"));
  EXPECT_THAT(messageOf(inEntry("  a = f32[] constant(1) /* open\n")),
              HasSubstr("comment does not end"));
  EXPECT_THAT(messageOf("HloModule m, num_partitions=0\n"),
              HasSubstr("must be from 1"));
  EXPECT_THAT(messageOf("HloModule m\n"), HasSubstr("no ENTRY"));
  EXPECT_THAT(messageOf(inEntry("  a = " + std::string(100000, '(') + "\n")),
              HasSubstr("nested deeper"));
  EXPECT_THAT(
      messageOf(inEntry("  a = f32[99999999999999999999] constant(0)\n")),
      HasSubstr("too large"));
}

TEST(HloReader, TablesOfStackFramesAreSkipped) {
  Module module = parse(
      "HloModule m\n\nFileNames\n1 \"a.py\"\n\nStackFrames\n"
      "1 {file_location_id=1 parent_frame_id=1}\n\n"
      "ENTRY e {\n ROOT a = f32[] parameter(0)\n}, execution_thread=\"main\"\n",
      "t.hlo");
  EXPECT_EQ(module.computations.size(), 1u);
}

TEST(HloReader, Sniffs) {
  EXPECT_TRUE(looksLikeHlo(kTraining));
  EXPECT_TRUE(looksLikeHlo("\n/* c */ HloModule x\n"));
  EXPECT_FALSE(looksLikeHlo("module {\n}\n"));
  EXPECT_FALSE(looksLikeHlo(""));
  EXPECT_FALSE(looksLikeHlo("/*"));
}

// Random edits of a good text: read, or refused with a position; never worse.

TEST(HloReader, SharedModels) {
  const std::filesystem::path folder = "../shared/models";
  if (!std::filesystem::exists(folder))
    GTEST_SKIP() << "the shared models are not there";
  auto read = [&](const char *name) {
    std::ifstream file(folder / name);
    std::stringstream text;
    text << file.rdbuf();
    return parse(text.str(), name);
  };
  auto count = [](const Module &module, std::string_view opcode) {
    size_t total = 0;
    for (const Computation &computation : module.computations)
      for (const Instruction &op : computation.instructions)
        total += opcode.empty() || op.opcode == opcode;
    return total;
  };
  Module mixtral = read("hlo_mixtral_8x7b_bf16_2x8.hlo");
  EXPECT_EQ(count(mixtral, ""), 43714u);
  EXPECT_EQ(count(mixtral, "all-reduce"), 1549u);
  EXPECT_EQ(count(mixtral, "all-gather"), 514u);
  EXPECT_EQ(count(mixtral, "all-to-all"), 192u);
  EXPECT_EQ(addControlEdges(mixtral, {}), *mixtral.text);
  Module llama = read("hlo_llama31_70b_bf16_16x8.hlo");
  EXPECT_EQ(count(llama, "while"), 2u);
  EXPECT_EQ(count(llama, "all-reduce"), 59u);
}
