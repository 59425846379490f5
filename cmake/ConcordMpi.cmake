# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# concord_add_mpi_module(WORD NAME PACKAGES): lib/libconcord_mpi_WORD.so, the
# transport between hosts over one MPI library, where its compiler wrapper is
# installed; else a line at configure time says what is left out. Several MPI
# libraries may be installed side by side, so FindMPI, which knows one, is not
# used.

# concord_find_mpi(WORD): CONCORD_MPI_WORD_INCLUDES and CONCORD_MPI_WORD_LIBRARIES,
# empty where the library is not installed.
function(concord_find_mpi word)
  # Debian's wrappers bear the library's name; elsewhere there is one mpicc.
  find_program(CONCORD_MPICC_${word} NAMES mpicc.${word} mpicc)
  mark_as_advanced(CONCORD_MPICC_${word})
  set(wrapper ${CONCORD_MPICC_${word}})
  set(flags "")
  if(wrapper)
    if(word STREQUAL "openmpi")
      execute_process(COMMAND ${wrapper} --showme:compile
        OUTPUT_VARIABLE compile RESULT_VARIABLE failed ERROR_QUIET)
      execute_process(COMMAND ${wrapper} --showme:link
        OUTPUT_VARIABLE link RESULT_VARIABLE failed2 ERROR_QUIET)
    else()
      execute_process(COMMAND ${wrapper} -compile_info
        OUTPUT_VARIABLE compile RESULT_VARIABLE failed ERROR_QUIET)
      execute_process(COMMAND ${wrapper} -link_info
        OUTPUT_VARIABLE link RESULT_VARIABLE failed2 ERROR_QUIET)
    endif()
    if(failed EQUAL 0 AND failed2 EQUAL 0)
      string(STRIP "${compile} ${link}" flags)
    endif()
  endif()
  separate_arguments(flags UNIX_COMMAND "${flags}")
  foreach(kind I L l)
    set(found_${kind} ${flags})
    list(FILTER found_${kind} INCLUDE REGEX "^-${kind}")
  endforeach()
  set(includes ${found_I})
  set(libraries ${found_l})
  list(REMOVE_DUPLICATES libraries)
  list(TRANSFORM includes REPLACE "^-I" "")
  if(libraries)
    set(libraries ${found_L} ${libraries})
  endif()
  set(CONCORD_MPI_${word}_INCLUDES ${includes} PARENT_SCOPE)
  set(CONCORD_MPI_${word}_LIBRARIES ${libraries} PARENT_SCOPE)
endfunction()

function(concord_add_mpi_module word name packages)
  concord_find_mpi(${word})
  if(NOT CONCORD_MPI_${word}_LIBRARIES)
    message(STATUS "Transport between hosts over ${name}: not built (apt install ${packages})")
    return()
  endif()
  set(target concord_mpi_${word})
  add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/runtime/transport/mpi/Mpi.cpp)
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/runtime)
  target_include_directories(${target} SYSTEM PRIVATE ${CONCORD_MPI_${word}_INCLUDES})
  target_compile_definitions(${target} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  target_link_libraries(${target} PRIVATE ${CONCORD_MPI_${word}_LIBRARIES})
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden)
  message(STATUS "Transport between hosts over ${name}: ${CONCORD_MPICC_${word}}")
endfunction()
