//===- Env.h - Reading environment variables --------------------*- C++ -*-===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Every variable is in concord/environment.h; what is read here is checked
// against its type and range there.
//
//===----------------------------------------------------------------------===//

#ifndef CONCORD_RUNTIME_CONTEXT_ENV_H
#define CONCORD_RUNTIME_CONTEXT_ENV_H

#include "concord/environment.h"

#include <string>
#include <vector>

namespace concord::rt {

/// The row of a variable; null when there is none.
const concord_variable *findVariable(const char *name);

/// "", or why `text` cannot be the variable's value.
std::string checkValue(const concord_variable &variable, const char *text);

/// A variable as this process sees it.
struct Setting {
  std::string value;
  const char *source;  ///< "default" or "environment"
  std::string problem; ///< of checkValue
};
Setting settingOf(const concord_variable &variable);

/// Names in the environment that begin with CONCORD_ and are in no row, each
/// with the name that was probably meant, where one is near.
struct UnknownVariable {
  std::string name, meant;
};
std::vector<UnknownVariable> unknownVariables();

/// The value, or the default of the list, or `fallback`. An empty value counts
/// as none. Throws INVALID_ARGUMENT for one that is not usable.
uint64_t envBytes(const char *name);
uint64_t envBytes(const char *name, uint64_t fallback);
double envSeconds(const char *name);
double envSeconds(const char *name, double fallback);
int64_t envInteger(const char *name);
int64_t envInteger(const char *name, int64_t fallback);
/// Index among the words of the list.
int envWord(const char *name);
std::string envText(const char *name);

int64_t nowNanoseconds();

} // namespace concord::rt

#endif // CONCORD_RUNTIME_CONTEXT_ENV_H
