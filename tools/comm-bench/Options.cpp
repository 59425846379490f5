//===- Options.cpp - The command line of comm-bench ---------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Parsing and help.
//
//===----------------------------------------------------------------------===//

#include "Options.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <getopt.h>

using namespace concord::bench;

static const char kHelp[] =
    "usage: comm-bench OP [options]\n"
    "Times a collective on ranks of this host. OP: all_reduce, all_gather,\n"
    "reduce_scatter, all_to_all, broadcast, reduce, gather, scatter, permute,\n"
    "barrier. Flags and columns are those of nccl-tests, except that -n is "
    "the\n"
    "number of ranks and --iters the iterations.\n\n"
    "  -n, --ranks N       ranks (default 2)\n"
    "  -b, --minbytes S    first size; K, M, G understood (8)\n"
    "  -e, --maxbytes S    last size (64M)\n"
    "  -i, --stepbytes S   add S per row, instead of\n"
    "  -f, --stepfactor F  multiply by F per row (2)\n"
    "  -o, --op R          sum, prod, min, max, avg, and, or, all (sum)\n"
    "  -d, --datatype T    float, half, bfloat16, double, int8, uint8, int32,\n"
    "                      uint32, int64, uint64, all (float)\n"
    "  -r, --root R        root of rooted operations (0)\n"
    "      --iters N       iterations per row (default: by size)\n"
    "  -w, --warmup_iters N  not timed (5)\n"
    "  -a, --average A     over ranks: 0 rank 0, 1 average, 2 least, 3 "
    "greatest\n"
    "                      (1)\n"
    "  -c, --check 0|1     check every element of the result (1)\n"
    "  -R, --local_register 0|1  1: buffers in the symmetric heap; 0: buffers "
    "of\n"
    "                      malloc (1)\n"
    "      --rotate 0|1    1: a different buffer every iteration, together "
    "twice\n"
    "                      the last-level cache; 0: always the same (1)\n"
    "  -J, --json FILE     also write the rows as JSON\n\n"
    "A size is that of the whole array, as in nccl-tests. time is in us; algbw "
    "is\n"
    "size / time in GB/s; busbw is algbw times the bytes that each rank has "
    "to\n"
    "send by size; eff is the time that the least number of bytes loaded and\n"
    "stored takes at the bandwidth of memory, measured in the same run on all\n"
    "ranks at once with the same footprint, divided by the time.\n";

const char *concord::bench::kindText(int32_t kind) {
  switch (kind) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_KINDS(X)
#undef X
  default:
    return "?";
  }
}

const char *concord::bench::reductionText(int32_t reduction) {
  switch (reduction) {
#define X(name, number, text)                                                  \
  case number:                                                                 \
    return text;
    CONCORD_REDUCTIONS(X)
#undef X
  default:
    return "?";
  }
}

static const struct {
  const char *name;
  int32_t dtype;
} kTypes[] = {{"float", CONCORD_DTYPE_F32},     {"half", CONCORD_DTYPE_F16},
              {"bfloat16", CONCORD_DTYPE_BF16}, {"double", CONCORD_DTYPE_F64},
              {"int8", CONCORD_DTYPE_I8},       {"uint8", CONCORD_DTYPE_U8},
              {"int32", CONCORD_DTYPE_I32},     {"uint32", CONCORD_DTYPE_U32},
              {"int64", CONCORD_DTYPE_I64},     {"uint64", CONCORD_DTYPE_U64}};

std::string concord::bench::dtypeText(int32_t dtype) {
  for (const auto &type : kTypes)
    if (type.dtype == dtype)
      return type.name;
  return "?";
}

static bool parseSize(const char *text, uint64_t &value) {
  char *end;
  double number = std::strtod(text, &end);
  if (end == text || number < 0)
    return false;
  uint64_t unit = 1;
  switch (*end) {
  case 'k':
  case 'K':
    unit = 1 << 10;
    break;
  case 'm':
  case 'M':
    unit = 1 << 20;
    break;
  case 'g':
  case 'G':
    unit = 1 << 30;
    break;
  }
  end += unit != 1;
  value = uint64_t(number * double(unit));
  return *end == 0 && value <= uint64_t(16) << 30;
}

bool concord::bench::parseOptions(int argc, char **argv, Options &options,
                                  int &code) {
  static const option kLong[] = {{"ranks", 1, nullptr, 'n'},
                                 {"minbytes", 1, nullptr, 'b'},
                                 {"maxbytes", 1, nullptr, 'e'},
                                 {"stepbytes", 1, nullptr, 'i'},
                                 {"stepfactor", 1, nullptr, 'f'},
                                 {"op", 1, nullptr, 'o'},
                                 {"datatype", 1, nullptr, 'd'},
                                 {"root", 1, nullptr, 'r'},
                                 {"iters", 1, nullptr, 1},
                                 {"warmup_iters", 1, nullptr, 'w'},
                                 {"average", 1, nullptr, 'a'},
                                 {"check", 1, nullptr, 'c'},
                                 {"local_register", 1, nullptr, 'R'},
                                 {"rotate", 1, nullptr, 2},
                                 {"json", 1, nullptr, 'J'},
                                 {"help", 0, nullptr, 'h'},
                                 {nullptr, 0, nullptr, 0}};
  code = 2;
  auto bad = [&](const char *what, const char *value) {
    std::fprintf(stderr, "comm-bench: %s '%s'; see --help\n", what, value);
    return false;
  };
  for (int c; (c = getopt_long(argc, argv, "n:b:e:i:f:o:d:r:w:a:c:R:J:h", kLong,
                               nullptr)) != -1;) {
    std::string value = optarg ? optarg : "";
    bool good = true;
    switch (c) {
    case 'n':
      options.ranks = std::atoi(value.c_str());
      good = options.ranks >= 1 && options.ranks <= 64;
      break;
    case 'b':
      good = parseSize(value.c_str(), options.from);
      break;
    case 'e':
      good = parseSize(value.c_str(), options.to);
      break;
    case 'i':
      good = parseSize(value.c_str(), options.step) && options.step > 0;
      break;
    case 'f':
      options.factor = std::atof(value.c_str());
      good = options.factor > 1;
      break;
    case 'o':
      options.reductions.clear();
      for (int r = CONCORD_REDUCTION_SUM; r <= CONCORD_REDUCTION_OR; ++r)
        if (value == reductionText(r) ||
            (value == "all" && r <= CONCORD_REDUCTION_AVG))
          options.reductions.push_back(r);
      good = !options.reductions.empty();
      break;
    case 'd':
      options.dtypes.clear();
      for (const auto &type : kTypes)
        if (value == type.name || value == "all")
          options.dtypes.push_back(type.dtype);
      good = !options.dtypes.empty();
      break;
    case 'r':
      options.root = std::atoi(value.c_str());
      break;
    case 1:
      options.iterations = std::atoi(value.c_str());
      good = options.iterations > 0;
      break;
    case 'w':
      options.warmup = std::atoi(value.c_str());
      good = options.warmup >= 0;
      break;
    case 'a':
      options.aggregate = std::atoi(value.c_str());
      good =
          value.size() == 1 && options.aggregate >= 0 && options.aggregate <= 3;
      break;
    case 'c':
      options.check = value != "0";
      break;
    case 'R':
      options.foreign = value == "0";
      break;
    case 2:
      options.rotate = value != "0";
      break;
    case 'J':
      options.jsonFile = value;
      break;
    case 'h':
      std::fputs(kHelp, stdout);
      code = 0;
      return false;
    default:
      return false;
    }
    if (!good)
      return bad("this value is not usable:", value.c_str());
  }
  if (optind + 1 != argc)
    return bad("one operation is needed, not",
               optind < argc ? argv[argc - 1] : "none");
  for (int kind = CONCORD_KIND_ALL_REDUCE; kind <= CONCORD_KIND_BARRIER; ++kind)
    if (std::string(argv[optind]) == kindText(kind) &&
        kind != CONCORD_KIND_SEND && kind != CONCORD_KIND_RECV)
      options.kind = kind;
  if (!options.kind)
    return bad("unknown operation", argv[optind]);
  if (options.root < 0 || options.root >= options.ranks)
    return bad("the root is not a rank:", std::to_string(options.root).c_str());
  if (options.from > options.to)
    return bad("the first size is above the last in", argv[optind]);
  if (options.kind == CONCORD_KIND_BARRIER)
    options.from = options.to = 0;
  if (options.dtypes.empty())
    options.dtypes = {CONCORD_DTYPE_F32};
  if (options.reductions.empty())
    options.reductions = {CONCORD_REDUCTION_SUM};
  if (options.kind != CONCORD_KIND_ALL_REDUCE &&
      options.kind != CONCORD_KIND_REDUCE_SCATTER &&
      options.kind != CONCORD_KIND_REDUCE)
    options.reductions = {CONCORD_REDUCTION_NONE};
  return true;
}
