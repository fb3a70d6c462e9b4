# What sinter_lib links, found by package file or, failing that, by header and library, so that a plain prefix named in
# CMAKE_PREFIX_PATH is enough. Used by the build and, installed beside sinterConfig.cmake, by find_package(sinter).

set(sinter_missing "")

# sinter_header_only(target header [definitions…]): an imported target for a library that is only headers.
function(sinter_header_only target header)
  string(MAKE_C_IDENTIFIER "SINTER_${target}_INCLUDE" variable)
  find_path(${variable} NAMES ${header})
  mark_as_advanced(${variable})
  if(${variable})
    add_library(${target} INTERFACE IMPORTED)
    set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${${variable}}"
                          INTERFACE_COMPILE_DEFINITIONS "${ARGN}")
  endif()
endfunction()

macro(sinter_require target package)
  if(NOT TARGET ${target})
    list(APPEND sinter_missing "${target} (Debian/Ubuntu: ${package})")
  endif()
endmacro()

macro(sinter_stop_if_missing)
  if(sinter_missing)
    list(JOIN sinter_missing "\n  " sinter_missing_lines)
    message(FATAL_ERROR "sinter needs, and did not find:\n  ${sinter_missing_lines}\n"
            "Run `make setup`, or name the prefix that holds them in CMAKE_PREFIX_PATH.")
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

find_package(fmt CONFIG QUIET)
if(NOT TARGET fmt::fmt)
  sinter_header_only(fmt::fmt fmt/format.h FMT_HEADER_ONLY)
endif()
sinter_require(fmt::fmt libfmt-dev)

find_package(nlohmann_json CONFIG QUIET)
if(NOT TARGET nlohmann_json::nlohmann_json)
  sinter_header_only(nlohmann_json::nlohmann_json nlohmann/json.hpp)
endif()
sinter_require(nlohmann_json::nlohmann_json nlohmann-json3-dev)

# Compiled into what includes it: nothing is linked.
if(NOT TARGET sinter::xxhash)
  sinter_header_only(sinter::xxhash xxhash.h XXH_INLINE_ALL)
endif()
sinter_require(sinter::xxhash libxxhash-dev)

# OpenBLAS itself, not any BLAS: its thread control is used. Debian keeps each variant's headers in a folder of its own,
# where a plain <cblas.h> may be the reference BLAS's.
if(NOT TARGET sinter::openblas)
  set(variants openblas-pthread openblas openblas-openmp openblas-serial)
  find_path(SINTER_OPENBLAS_INCLUDE NAMES openblas_config.h PATH_SUFFIXES ${variants})
  find_library(SINTER_OPENBLAS_LIBRARY NAMES openblas openblasp)  # the one the system's alternatives point at
  find_library(SINTER_OPENBLAS_LIBRARY NAMES openblas openblasp PATH_SUFFIXES ${variants})
  mark_as_advanced(SINTER_OPENBLAS_INCLUDE SINTER_OPENBLAS_LIBRARY)
  if(SINTER_OPENBLAS_INCLUDE AND SINTER_OPENBLAS_LIBRARY AND EXISTS "${SINTER_OPENBLAS_INCLUDE}/cblas.h")
    add_library(sinter::openblas UNKNOWN IMPORTED)
    set_target_properties(sinter::openblas PROPERTIES IMPORTED_LOCATION "${SINTER_OPENBLAS_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${SINTER_OPENBLAS_INCLUDE}")
  endif()
  unset(variants)
endif()
sinter_require(sinter::openblas libopenblas-dev)

# Optional: see SinterGloo.cmake. By header and library: Debian's package file names one build type and one path.
macro(sinter_find_gloo)
  find_path(SINTER_GLOO_INCLUDE NAMES gloo/allreduce.h)
  find_library(SINTER_GLOO_LIBRARY NAMES gloo)
  mark_as_advanced(SINTER_GLOO_INCLUDE SINTER_GLOO_LIBRARY)
  if(SINTER_GLOO_INCLUDE AND SINTER_GLOO_LIBRARY AND NOT TARGET sinter::gloo)
    add_library(sinter::gloo UNKNOWN IMPORTED)
    set_target_properties(sinter::gloo PROPERTIES IMPORTED_LOCATION "${SINTER_GLOO_LIBRARY}"
                          INTERFACE_INCLUDE_DIRECTORIES "${SINTER_GLOO_INCLUDE}")
  endif()
endmacro()
