//===- CommDialect.cpp - The comm dialect ---------------------------------===//
//
// Part of the Concord project, under the Apache License v2.0 with LLVM
// Exceptions. SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Registers the dialect's operations, types and attributes.
//
//===----------------------------------------------------------------------===//

#include "comm/Comm.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace concord::comm;

#include "comm/CommDialect.cpp.inc"
#include "comm/CommEnums.cpp.inc"
#include "comm/CommInterfaces.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "comm/CommTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "comm/CommAttrs.cpp.inc"

void CommDialect::initialize() {
  weightStore = std::make_shared<WeightStore>();
  addOperations<
#define GET_OP_LIST
#include "comm/CommOps.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "comm/CommTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "comm/CommAttrs.cpp.inc"
      >();
}

int64_t concord::comm::getWorld(Operation *module) {
  if (auto world = module->getAttrOfType<IntegerAttr>("comm.world"))
    return world.getInt();
  return 1;
}

DomainOp concord::comm::lookupDomain(Operation *from,
                                     FlatSymbolRefAttr domain) {
  return SymbolTable::lookupNearestSymbolFrom<DomainOp>(from, domain);
}

bool concord::comm::isIssue(Operation *op) {
  return isa<CollectiveOpInterface, WaitOp, GroupOp>(op);
}
