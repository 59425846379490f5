//===- Update.cpp - An update between reduce_scatter and all_gather -------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `fused_update`: the step of an optimiser over parameters whose states are
// divided among the members (as in ZeRO): each reduces its share of the
// gradient, updates its share of parameters and states, and stores the new
// parameters at all members. docs/kernels.md lists the keys.
//
//===----------------------------------------------------------------------===//

#include "Select.h"
#include "UpdateHot.h"

#include <algorithm>
#include <charconv>
#include <cstring>

namespace concord::kernels {
namespace {

// Numbers of concord.h, which this room does not include.
constexpr uint32_t kAllReduce = 1, kSum = 1;

/// Bytes of gradient in a part: between two looks at other operations.
constexpr int64_t kPartBytes = 128 << 10;
constexpr size_t kMostInstructions = 512;
static_assert(kUpdateOperands == CONCORD_FUSED_MAX_OPERANDS);

struct Instruction {
  UpdateCode code;
  GemmType type = GemmType::F32; ///< of Round
  size_t a = 0, b = 0;           ///< values
  float value = 0;
};

struct Name {
  std::string_view text;
  UpdateCode code;
  int operands;
};
constexpr Name kNames[] = {
    {"add", UpdateCode::Add, 2},   {"sub", UpdateCode::Sub, 2},
    {"mul", UpdateCode::Mul, 2},   {"div", UpdateCode::Div, 2},
    {"neg", UpdateCode::Neg, 1},   {"abs", UpdateCode::Abs, 1},
    {"sqrt", UpdateCode::Sqrt, 1}, {"max", UpdateCode::Max, 2},
    {"min", UpdateCode::Min, 2},
};

/// f32, f16 or bf16, with the key named otherwise.
GemmType narrowType(const Description &d, const char *key, DType type) {
  switch (type) {
  case DType::F32:
    return GemmType::F32;
  case DType::F16:
    return GemmType::F16;
  case DType::BF16:
    return GemmType::BF16;
  default:
    d.unsupported(key, "must be f32, f16 or bf16");
  }
}

class Update final : public Kernel {
public:
  explicit Update(const Description &d) : table(CONCORD_SELECT(updateTable)) {
    info.struct_size = sizeof info;
    info.members = uint32_t(d.size("members", 1, kMostMembers));
    members = int(info.members);
    share = d.size("count", 1);
    elementCount({share, members}, 8);
    info.dtype = uint32_t(d.dtype("dtype"));
    type = narrowType(d, "dtype", DType(info.dtype));
    info.kind = kAllReduce;
    info.reduction = kSum;
    info.count = uint64_t(share) * info.members;
    const uint64_t es = uint64_t(sizeOf(type));

    std::vector<GemmType> inputs, outputs;
    for (DType t : d.dtypes("inputs"))
      inputs.push_back(narrowType(d, "inputs", t));
    for (DType t : d.dtypes("outputs"))
      outputs.push_back(narrowType(d, "outputs", t));
    std::vector<bool> single(inputs.size());
    for (int64_t i : d.list("single", {})) {
      if (i < 0 || size_t(i) >= inputs.size())
        d.fail("single", "names no input");
      single[size_t(i)] = true;
    }
    if (inputs.size() + outputs.size() + 2 > CONCORD_FUSED_MAX_OPERANDS)
      d.unsupported("inputs", "and outputs are too many");

    auto operand = [&](uint64_t bytes) {
      info.operand_bytes[info.num_operands] = bytes;
      return info.num_operands++;
    };
    info.shared = operand(info.count * es);
    for (size_t i = 0; i < inputs.size(); ++i)
      operand(uint64_t(single[i] ? 1 : share) * uint64_t(sizeOf(inputs[i])));
    numInputs = info.num_operands;
    info.written = 1u << operand(info.count * es);
    for (GemmType t : outputs)
      operand(uint64_t(share) * uint64_t(sizeOf(t)));
    numOutputs = info.num_operands - numInputs;
    for (uint32_t i = 0; i < info.num_operands; ++i)
      elementBytes[i] =
          uint64_t(i == 0 || i == numInputs ? sizeOf(type)
                   : i < numInputs ? (single[i - 1] ? 0 : sizeOf(inputs[i - 1]))
                                   : sizeOf(outputs[i - numInputs - 1]));

    std::vector<Instruction> program = read(d, 1 + inputs.size());
    std::vector<int64_t> results = d.list("results");
    if (results.size() != 1 + outputs.size())
      d.fail("results", "are the gathered value, then one for each output");
    for (int64_t r : results)
      if (r < 0 || size_t(r) >= 1 + inputs.size() + program.size())
        d.fail("results", "names no value");
    schedule(program, inputs, single, outputs, results);

    int64_t each = std::max<int64_t>(
        kUpdateStrip, kPartBytes / int64_t(es) / kUpdateStrip * kUpdateStrip);
    partElements = each;
    info.parts = uint32_t((share + each - 1) / each);
    workspaceBytes = info.workspace_bytes =
        uint64_t(strips + 1) * kUpdateStrip * sizeof(float);
  }

  const concord_fused_info *fused() const override { return &info; }
  int32_t run(void *const *, void *) const override {
    return setLastError(kInvalidArgument,
                        "a kernel that is one with a collective is issued, not "
                        "run");
  }

  int32_t step(const concord_fused_step &s) const override {
    const int64_t first = int64_t(s.part) * partElements;
    UpdateShape shape;
    shape.count = std::min(share - first, partElements);
    shape.steps = steps.data();
    shape.numSteps = int(steps.size());
    shape.members = shape.targets = members;
    shape.me = int(s.me);
    shape.stream = s.stream != 0;
    shape.take = !shape.stream;
    const int64_t es = sizeOf(type);
    const int64_t at = (int64_t(s.me) * share + first) * es;
    UpdateOperands o;
    for (int m = 0; m < members; ++m) {
      o.parts[m] = static_cast<char *>(s.peers[info.shared][m]) + at;
      // Begin with different targets at different members.
      o.targets[m] =
          static_cast<char *>(s.peers[numInputs][(int(s.me) + m) % members]) +
          at;
    }
    for (uint32_t i = 0; i < info.num_operands; ++i)
      o.operands[i] =
          static_cast<char *>(s.pointers[i]) + first * int64_t(elementBytes[i]);
    Poller poller;
    table.run(shape, o, s.workspace, poller);
    return kOk;
  }

private:
  /// `add 0 1;const 3f800000;round bf16 3`: instructions number on from the
  /// gradient (0) and the inputs.
  std::vector<Instruction> read(const Description &d, size_t values) const {
    std::vector<Instruction> program;
    std::string text = d.string("program");
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find(';', at), text.size());
      std::string_view line(text.data() + at, end - at);
      at = end + 1;
      auto word = [&] {
        size_t cut = std::min(line.find(' '), line.size());
        std::string_view first = line.substr(0, cut);
        line.remove_prefix(std::min(cut + 1, line.size()));
        return first;
      };
      auto number = [&](int base, auto &to) {
        std::string_view digits = word();
        auto [stop, error] = std::from_chars(
            digits.data(), digits.data() + digits.size(), to, base);
        if (error != std::errc() || stop != digits.data() + digits.size())
          d.fail("program", "'" + std::string(digits) + "' is no number");
      };
      auto value = [&](size_t &to) {
        number(10, to);
        if (to >= values)
          d.fail("program", "uses a value that does not exist yet");
      };
      std::string_view name = word();
      Instruction instruction{};
      if (name == "const") {
        uint32_t bits = 0;
        number(16, bits);
        instruction.code = UpdateCode::Constant;
        std::memcpy(&instruction.value, &bits, sizeof bits);
      } else if (name == "round") {
        instruction.code = UpdateCode::Round;
        std::string_view to = word();
        if (to != "bf16" && to != "f16")
          d.fail("program", "rounds to bf16 or f16");
        instruction.type = to == "f16" ? GemmType::F16 : GemmType::BF16;
        value(instruction.a);
      } else {
        const Name *known = nullptr;
        for (const Name &n : kNames)
          if (n.text == name)
            known = &n;
        if (!known)
          d.fail("program", "'" + std::string(name) + "' is no operation");
        instruction.code = known->code;
        value(instruction.a);
        if (known->operands == 2)
          value(instruction.b);
        else
          instruction.b = instruction.a;
      }
      if (!line.empty())
        d.fail("program", "'" + std::string(line) + "' is too much");
      if (program.size() == kMostInstructions)
        d.unsupported("program", "has too many instructions");
      program.push_back(instruction);
      ++values;
    }
    return program;
  }

  /// What is done with a strip, in order, and in which strip each value lies:
  /// inputs are loaded when first used, results stored when they are there.
  void schedule(const std::vector<Instruction> &program,
                const std::vector<GemmType> &inputs,
                const std::vector<bool> &single,
                const std::vector<GemmType> &outputs,
                const std::vector<int64_t> &results) {
    const size_t firstOwn = 1 + inputs.size();
    std::vector<size_t> lastUse(firstOwn + program.size(), 0);
    auto uses = [&](const Instruction &i, auto f) {
      if (i.code == UpdateCode::Constant)
        return;
      f(i.a);
      if (i.b != i.a && i.code != UpdateCode::Round)
        f(i.b);
    };
    for (size_t n = 0; n < program.size(); ++n)
      uses(program[n], [&](size_t v) { lastUse[v] = n + 1; });
    std::vector<int> place(lastUse.size(), -1);
    std::vector<int> free;
    auto take = [&](size_t value) {
      if (free.empty())
        free.push_back(strips++);
      place[value] = free.back();
      free.pop_back();
      return uint16_t(place[value]);
    };
    // A strip of its own: storing comes before anything else takes it.
    auto store = [&](size_t value) {
      for (size_t r = 0; r < results.size(); ++r) {
        if (size_t(results[r]) != value)
          continue;
        UpdateStep step;
        step.code = r ? UpdateCode::Store : UpdateCode::Spread;
        step.type = r ? outputs[r - 1] : type;
        step.operand = uint16_t(numInputs + r);
        step.a = uint16_t(place[value]);
        steps.push_back(step);
      }
    };
    auto load = [&](size_t value) {
      if (place[value] >= 0 || value >= firstOwn)
        return;
      UpdateStep step;
      step.code = value == 0          ? UpdateCode::Sum
                  : single[value - 1] ? UpdateCode::Single
                                      : UpdateCode::Load;
      step.type = value ? inputs[value - 1] : type;
      step.operand = uint16_t(value);
      step.to = take(value);
      steps.push_back(step);
      if (value == 0 && type != GemmType::F32) {
        // As the collective's result would have been.
        step.code = UpdateCode::Round;
        step.a = step.to;
        steps.push_back(step);
      }
      store(value);
    };
    // The members' parts are read whether their sum is used or not.
    load(0);
    for (size_t n = 0; n < program.size(); ++n) {
      const Instruction &instruction = program[n];
      uses(instruction, load);
      UpdateStep step;
      step.code = instruction.code;
      step.type = instruction.type;
      step.value = instruction.value;
      if (instruction.code != UpdateCode::Constant) {
        step.a = uint16_t(place[instruction.a]);
        step.b = instruction.code == UpdateCode::Round
                     ? step.a
                     : uint16_t(place[instruction.b]);
      }
      // Operations go element by element: a result may lie over an operand.
      uses(instruction, [&](size_t v) {
        if (lastUse[v] == n + 1)
          free.push_back(place[v]);
      });
      step.to = take(firstOwn + n);
      steps.push_back(step);
      store(firstOwn + n);
      if (lastUse[firstOwn + n] == 0)
        free.push_back(place[firstOwn + n]);
    }
    for (int64_t r : results)
      load(size_t(r)); // an input that is handed on
  }

  const UpdateTable &table;
  concord_fused_info info = {};
  int members = 1;
  GemmType type = GemmType::F32;
  int64_t share = 0, partElements = 0;
  uint64_t elementBytes[CONCORD_FUSED_MAX_OPERANDS] = {};
  std::vector<UpdateStep> steps;
  int strips = 0;
};

} // namespace

void registerUpdate(Registry &registry) {
  registry.add("fused_update", make<Update>);
}

} // namespace concord::kernels
