# Decides whether ranks can talk over TCP: SINTER_GLOO (AUTO, ON or OFF) becomes ON, with the target sinter::gloo, or
# OFF. gloo_unused is the one of its two sources that is left out.

set(SINTER_GLOO AUTO CACHE STRING "Build the gloo backend: AUTO (if it is found), ON (or fail), OFF")
set_property(CACHE SINTER_GLOO PROPERTY STRINGS AUTO ON OFF)

if(SINTER_GLOO)  # AUTO counts as true
  sinter_find_gloo()
  if(TARGET sinter::gloo)
    set(SINTER_GLOO ON)
    message(STATUS "gloo: ON (${SINTER_GLOO_LIBRARY})")
  elseif(SINTER_GLOO STREQUAL AUTO)
    set(SINTER_GLOO OFF)
    message(STATUS "gloo: OFF, stubs are built (gloo/allreduce.h or libgloo was not found; Debian/Ubuntu: libgloo-dev)")
  else()
    sinter_require(sinter::gloo libgloo-dev)
  endif()
else()
  set(SINTER_GLOO OFF)
  message(STATUS "gloo: OFF, stubs are built (SINTER_GLOO=OFF)")
endif()
set(gloo_unused gloo_group)
if(SINTER_GLOO)
  set(gloo_unused no_gloo)
endif()
