# cmake -DBUILD=… -DPROJECT=… -DWORK=… -DGENERATOR=… -DCXX=… -DPREFIXES=… -P run.cmake
file(REMOVE_RECURSE "${WORK}")
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE failed COMMAND_ECHO STDOUT)
  if(failed)
    message(FATAL_ERROR "failed: ${failed}")
  endif()
endfunction()

list(JOIN PREFIXES "\\;" prefixes)
step(${CMAKE_COMMAND} --install "${BUILD}" --prefix "${WORK}/prefix")
step(${CMAKE_COMMAND} -S "${PROJECT}" -B "${WORK}/build" -G "${GENERATOR}" -DCMAKE_CXX_COMPILER=${CXX}
     "-DCMAKE_PREFIX_PATH=${WORK}/prefix\\;${prefixes}")
step(${CMAKE_COMMAND} --build "${WORK}/build")
step("${WORK}/build/app")
if(EXISTS "${WORK}/prefix/bin/sinter")
  step("${WORK}/prefix/bin/sinter" --help)
endif()
