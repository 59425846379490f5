//===- BenchRows.h - The output of a benchmark ------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `./run bench NAME [-J FILE]`: a table, then a line per floor, and the rows as
// JSON where asked for.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_TEST_ORDER_BENCHROWS_H
#define CONCORD_TEST_ORDER_BENCHROWS_H

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

class BenchRows {
public:
  BenchRows(int argc, char **argv) {
    for (int i = 1; i + 1 < argc; ++i)
      if (!std::strcmp(argv[i], "-J"))
        path = argv[i + 1];
  }
  /// `floor` 0: no floor, the row only informs.
  void add(std::string name, double value, const char *unit, double floor,
           bool ok) {
    std::printf("%-44s %12.4f %s\n", name.c_str(), value, unit);
    std::fflush(stdout);
    rows.push_back({std::move(name), unit, value, floor, ok});
  }
  /// Prints the floors and writes the file; the process's exit status.
  int finish() const {
    for (const Row &r : rows)
      if (r.floor != 0)
        std::printf("floor %s: %.4f %s against %.4f: %s\n", r.name.c_str(),
                    r.value, r.unit.c_str(), r.floor, r.ok ? "ok" : "MISSED");
    if (path.empty())
      return 0;
    FILE *out = std::fopen(path.c_str(), "w");
    if (!out) {
      std::fprintf(stderr, "cannot write %s\n", path.c_str());
      return 2;
    }
    std::fprintf(out, "{\"rows\":[");
    for (size_t i = 0; i < rows.size(); ++i)
      std::fprintf(out,
                   "%s\n{\"name\":\"%s\",\"value\":%.6f,\"unit\":\"%s\","
                   "\"floor\":%.4f,\"ok\":%s}",
                   i ? "," : "", rows[i].name.c_str(), rows[i].value,
                   rows[i].unit.c_str(), rows[i].floor,
                   rows[i].ok ? "true" : "false");
    std::fprintf(out, "\n]}\n");
    return std::fclose(out) == 0 ? 0 : 2;
  }

private:
  struct Row {
    std::string name, unit;
    double value, floor;
    bool ok;
  };
  std::string path;
  std::vector<Row> rows;
};

#endif // CONCORD_TEST_ORDER_BENCHROWS_H
