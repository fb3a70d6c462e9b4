# `cmake --install`: program, libraries (C++ static, C shared), headers, and a package for find_package(sinter) → sinter::sinter.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/sinter)
install(TARGETS sinter_lib EXPORT sinterTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS sinter_shared LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET sinter)
  install(TARGETS sinter RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# src/core/tensor.h → include/sinter/core/tensor.h. Both include/ and include/sinter/ are on the include path, so that
# <sinter/sinter.hpp> and the "core/tensor.h" that it includes are found.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION include/sinter
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" PATTERN "*.def")
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/sinter/ DESTINATION include/sinter)
file(GLOB peers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/peers/*.py)
install(FILES ${peers} DESTINATION share/sinter/peers)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION share/doc/sinter)

install(EXPORT sinterTargets NAMESPACE sinter:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/sinterConfig.cmake.in
  ${PROJECT_BINARY_DIR}/generated/sinterConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/sinterConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/sinterConfig.cmake
              ${PROJECT_BINARY_DIR}/generated/sinterConfigVersion.cmake
              ${PROJECT_SOURCE_DIR}/cmake/SinterDependencies.cmake DESTINATION ${package_dir})
