# Build types, warnings, sanitizers, ccache. Global on purpose: the backends' object libraries get them too.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# Release keeps assert() and line numbers: a fault in a long run should name its place.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")
set(CMAKE_CUDA_FLAGS_RELEASE "-O3 -lineinfo")
set(CMAKE_CUDA_FLAGS_DEBUG "-O1 -g -lineinfo")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)  # an installed sinter finds libcublasLt where the build found it

# Source locations in snapshots and timelines name files as the source tree does, wherever it lies.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>"
                    "$<$<COMPILE_LANGUAGE:CXX>:-fmacro-prefix-map=../=>")  # as a compiler cache may call them

option(SINTER_WERROR "Treat warnings as errors" OFF)
set(warnings -Wall -Wextra)
if(SINTER_WERROR)
  list(APPEND warnings -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC's flow-based warnings have false positives that move from release to release.
    list(APPEND warnings -Wno-error=maybe-uninitialized -Wno-error=array-bounds -Wno-error=stringop-overflow
                         -Wno-error=stringop-overread -Wno-error=restrict -Wno-error=dangling-pointer)
  endif()
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")

set(SINTER_SANITIZE "" CACHE STRING "Sanitizers, as in -fsanitize=: address,undefined or thread")
if(SINTER_SANITIZE)
  set(CMAKE_CXX_FLAGS_RELEASE "-O0 -g1")  # a third of the time to build; kernels of the CPU have their own -O3
  add_compile_options(-fsanitize=${SINTER_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${SINTER_SANITIZE})
endif()

set(SINTER_FUZZ "" CACHE FILEPATH "libFuzzer's archive: builds tests/fuzz with it (tools/fuzz.sh)")
if(SINTER_FUZZ)
  set(CMAKE_CXX_FLAGS_RELEASE "-O1 -g1")
  add_compile_options(-fsanitize-coverage=trace-pc,trace-cmp)
endif()

find_program(SINTER_CCACHE ccache)
if(SINTER_CCACHE)
  foreach(language CXX CUDA)
    if(NOT DEFINED CMAKE_${language}_COMPILER_LAUNCHER)
      # With precompiled headers it has to be told not to look for macros that they could have used.
      set(CMAKE_${language}_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros
          ${SINTER_CCACHE})
    endif()
  endforeach()
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endif()
