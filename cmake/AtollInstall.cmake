# Installation: libraries, public headers, the program, and a CMake package, so that another program can
# find_package(atoll) and link atoll::core, atoll::parallel, atoll::model or atoll::io.
include(CMakePackageConfigHelpers)

get_property(atoll_libraries GLOBAL PROPERTY ATOLL_LIBRARIES)
set(atoll_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/atoll)

install(TARGETS ${atoll_libraries} EXPORT atoll-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
if(TARGET atoll)
  # The program keeps the paths of the libraries it was linked with: on clusters they are seldom in the loader's own.
  set_target_properties(atoll PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  file(RELATIVE_PATH to_libraries ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(atoll PROPERTIES INSTALL_RPATH $ORIGIN/${to_libraries})
  install(TARGETS atoll RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
set_target_properties(${atoll_libraries} PROPERTIES INSTALL_RPATH $ORIGIN INSTALL_RPATH_USE_LINK_PATH ON)

# Headers keep their folders, since they include each other as "core/array.hpp".
foreach(folder core parallel model io)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/atoll
    FILES_MATCHING PATTERN "*.hpp")
endforeach()

install(EXPORT atoll-targets NAMESPACE atoll:: DESTINATION ${atoll_cmake_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/atoll-config.cmake.in
  ${PROJECT_BINARY_DIR}/atoll-config.cmake INSTALL_DESTINATION ${atoll_cmake_dir})
# While the major version is 0 a minor version may break users.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/atoll-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/atoll-config.cmake
  ${PROJECT_BINARY_DIR}/atoll-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/AtollDependencies.cmake
  DESTINATION ${atoll_cmake_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/systems DESTINATION ${CMAKE_INSTALL_DATADIR}/atoll
  FILES_MATCHING PATTERN "*.toml")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
