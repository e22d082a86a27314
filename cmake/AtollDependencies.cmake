# Everything atoll needs, by find_package or pkg-config; nothing is downloaded or vendored.
# Used by the build and by an installed atoll-config.cmake, so that both find the same things.
include(CMakeFindDependencyMacro)

find_package(Kokkos REQUIRED)
find_package(KokkosKernels REQUIRED)
find_package(MPI REQUIRED COMPONENTS C)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(tomlplusplus REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)

# Kokkos and Kokkos Kernels as one target. Debian's Kokkos 3.4 (from Trilinos) exports a broken include path on
# Kokkos::kokkos and variables instead of targets elsewhere, so paths are passed as SYSTEM includes.
if(NOT TARGET atoll_kokkos)
  add_library(atoll_kokkos INTERFACE)
  if(Kokkos_INCLUDE_DIRS OR Kokkos_LIBRARIES)
    target_include_directories(atoll_kokkos SYSTEM INTERFACE ${Kokkos_INCLUDE_DIRS} ${KokkosKernels_INCLUDE_DIRS})
  endif()
  if(EXISTS "${Kokkos_DIR}/KokkosConfigCommon.cmake")  # Kokkos' own installation
    target_link_libraries(atoll_kokkos INTERFACE Kokkos::kokkos Kokkos::kokkoskernels)
  else()
    target_link_libraries(atoll_kokkos INTERFACE ${KokkosKernels_LIBRARIES} ${Kokkos_LIBRARIES})
  endif()
endif()
