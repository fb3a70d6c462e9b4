# "sinter_build_info.h" for the one .cpp that reports versions: rewritten at build time, and only when it changes,
# because the commit may move without a configure.

set(info_dir ${PROJECT_BINARY_DIR}/generated)
set(cuda_version "")
if(SINTER_CUDA)
  set(cuda_version ${CMAKE_CUDA_COMPILER_VERSION})
endif()
file(CONFIGURE OUTPUT ${info_dir}/build_info.in @ONLY CONTENT [[
// Written by the build.
#pragma once
#define SINTER_BUILD_VERSION "@PROJECT_VERSION@"
#define SINTER_BUILD_COMMIT "%COMMIT%"
#define SINTER_BUILD_TYPE "@CMAKE_BUILD_TYPE@"
#define SINTER_BUILD_SANITIZE "@SINTER_SANITIZE@"
#define SINTER_BUILD_COMPILER "@CMAKE_CXX_COMPILER_ID@ @CMAKE_CXX_COMPILER_VERSION@"
#define SINTER_BUILD_CUDA "@cuda_version@"  // "" without CUDA
#define SINTER_BUILD_CUDA_WHY "@SINTER_CUDA_REASON@"
#define SINTER_BUILD_SOURCE_DIR "@PROJECT_SOURCE_DIR@"      // where this build's bench/peers lie
#define SINTER_INSTALL_PEERS "share/sinter/peers"           // below the prefix, beside bin/
]])
add_custom_target(sinter_build_info
  COMMAND ${CMAKE_COMMAND} -DSOURCE=${PROJECT_SOURCE_DIR} -DIN=${info_dir}/build_info.in
          -DOUT=${info_dir}/sinter_build_info.h -P ${PROJECT_SOURCE_DIR}/cmake/write_build_info.cmake
  BYPRODUCTS ${info_dir}/sinter_build_info.h COMMENT "Commit and versions" VERBATIM)
add_dependencies(sinter_lib sinter_build_info)
target_include_directories(sinter_lib PRIVATE ${info_dir})
