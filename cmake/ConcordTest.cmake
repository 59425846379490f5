# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# concord_add_unittest(NAME SOURCES... LIBS libs...): one GoogleTest binary in
# build/bin/unit, registered with ctest as unit.NAME.

if(CONCORD_BUILD_TESTS AND CMAKE_CROSSCOMPILING)
  # Debian has the library for this machine, and the source for any.
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest googletest EXCLUDE_FROM_ALL)
elseif(CONCORD_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

function(concord_add_unittest name)
  if(NOT CONCORD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/unit)
  add_test(NAME unit.${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(unit.${name} PROPERTIES TIMEOUT 600)
endfunction()
