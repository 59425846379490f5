# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# concord_add_unittest(NAME SOURCES... LIBS libs...): one GoogleTest binary in
# build/bin/unit, registered with ctest as unit.NAME.
#
# concord_add_fuzzer(NAME SOURCES... LIBS libs... [RUNS n]): one target of test/fuzz,
# build/bin/unit/fuzz_NAME. A test of n mutations, unit.fuzz_NAME; with CONCORD_FUZZ a
# libFuzzer program instead, for which everything has to be compiled with its coverage
# (preset fuzz; ./run fuzz).

if(CONCORD_BUILD_TESTS AND CMAKE_CROSSCOMPILING)
  # Debian has the library for this machine, and the source for any.
  set(INSTALL_GTEST OFF)
  add_subdirectory(/usr/src/googletest googletest EXCLUDE_FROM_ALL)
elseif(CONCORD_BUILD_TESTS)
  find_package(GTest REQUIRED)
endif()

# Seconds that a test may take. Sanitizers and emulators are slow, and what the
# property says counts before ctest's --timeout.
set(CONCORD_TEST_TIMEOUT 600)
if(CONCORD_SANITIZE OR CMAKE_CROSSCOMPILING)
  set(CONCORD_TEST_TIMEOUT 3600)
endif()

function(concord_add_unittest name)
  if(NOT CONCORD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  # Half of the time at -O3, and only what is tested has to be fast.
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/unit)
  add_test(NAME unit.${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(unit.${name} PROPERTIES TIMEOUT ${CONCORD_TEST_TIMEOUT})
endfunction()

option(CONCORD_FUZZ "The targets of test/fuzz are libFuzzer programs (clang only)" OFF)
add_custom_target(fuzzers)

function(concord_add_fuzzer name)
  if(NOT CONCORD_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(ARG "" "RUNS" "LIBS" ${ARGN})
  if(NOT ARG_RUNS)
    set(ARG_RUNS 3000)
  endif()
  set(target fuzz_${name})
  add_executable(${target} ${ARG_UNPARSED_ARGUMENTS} ${CMAKE_SOURCE_DIR}/test/fuzz/Fuzz.cpp)
  target_link_libraries(${target} PRIVATE ${ARG_LIBS})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/unit)
  add_dependencies(fuzzers ${target})
  if(CONCORD_FUZZ)
    target_compile_definitions(${target} PRIVATE CONCORD_LIBFUZZER)
    target_link_options(${target} PRIVATE -fsanitize=fuzzer)
  else()
    add_test(NAME unit.${target} COMMAND ${target} -runs=${ARG_RUNS}
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
    set_tests_properties(unit.${target} PROPERTIES TIMEOUT ${CONCORD_TEST_TIMEOUT})
  endif()
endfunction()
