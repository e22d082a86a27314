# Everything atoll needs, by find_package or pkg-config; nothing is downloaded or vendored.
# Used by the build and by an installed atoll-config.cmake, so that both find the same things.
include(CMakeFindDependencyMacro)

# atoll_need(PACKAGE WHAT DEBIAN SPACK [arguments of find_package]): looks for a package and remembers what is missing, so
# that one message names all of it.
set(ATOLL_MISSING "")
macro(atoll_need package what debian spack)
  find_package(${package} QUIET ${ARGN})
  if(NOT ${package}_FOUND)
    string(APPEND ATOLL_MISSING "\n  ${what}: Debian ${debian}, Spack ${spack}, or set ${package}_ROOT to its folder")
  endif()
endmacro()

atoll_need(Kokkos "Kokkos 3.4 or newer" "libtrilinos-kokkos-dev" "kokkos")
# Debian's is a Trilinos package: its dependencies have to be named as well.
atoll_need(KokkosKernels "Kokkos Kernels of the same release, with BLAS"
  "libtrilinos-kokkos-kernels-dev libopenblas-dev liblapack-dev" "kokkos-kernels+blas")
atoll_need(MPI "an MPI-3 library with its C interface" "libmpich-dev mpich" "mpich, openmpi, or the system's" COMPONENTS C)
atoll_need(HDF5 "HDF5 1.10 or newer with its C interface" "libhdf5-dev" "hdf5" COMPONENTS C)
atoll_need(Threads "threads" "libc6-dev" "gcc")
atoll_need(fmt "fmt" "libfmt-dev" "fmt")
atoll_need(spdlog "spdlog" "libspdlog-dev" "spdlog")
atoll_need(CLI11 "CLI11" "libcli11-dev" "cli11")
atoll_need(tomlplusplus "toml++" "libtomlplusplus-dev" "tomlplusplus")
atoll_need(nlohmann_json "nlohmann-json" "nlohmann-json3-dev" "nlohmann-json")
atoll_need(ZLIB "zlib" "zlib1g-dev" "zlib")
atoll_need(PkgConfig "pkg-config" "pkg-config" "pkgconf")
if(PkgConfig_FOUND)
  pkg_check_modules(xxhash QUIET IMPORTED_TARGET libxxhash)
  if(NOT xxhash_FOUND)
    string(APPEND ATOLL_MISSING "\n  xxHash: Debian libxxhash-dev, Spack xxhash, or name its folder in PKG_CONFIG_PATH")
  endif()
  pkg_check_modules(pcre2 QUIET IMPORTED_TARGET libpcre2-8)
  if(NOT pcre2_FOUND)
    string(APPEND ATOLL_MISSING "\n  PCRE2: Debian libpcre2-dev, Spack pcre2, or name its folder in PKG_CONFIG_PATH")
  endif()
  pkg_check_modules(utf8proc QUIET IMPORTED_TARGET libutf8proc)
  if(NOT utf8proc_FOUND)
    string(APPEND ATOLL_MISSING
      "\n  utf8proc: Debian libutf8proc-dev, Spack utf8proc, or name its folder in PKG_CONFIG_PATH")
  endif()
endif()
if(PkgConfig_FOUND)
  pkg_check_modules(zstd QUIET IMPORTED_TARGET libzstd)
  if(NOT zstd_FOUND)
    string(APPEND ATOLL_MISSING "\n  Zstandard: Debian libzstd-dev, Spack zstd, or name its folder in PKG_CONFIG_PATH")
  endif()
endif()
if(ATOLL_MISSING)
  string(CONCAT ATOLL_MISSING "atoll needs, and CMake did not find:${ATOLL_MISSING}\nFolders that hold several of these "
    "can be listed in CMAKE_PREFIX_PATH. cmake --debug-find-pkg=NAME shows where CMake looked. See docs/install.md.")
  if(NOT ATOLL_INSTALLED)  # an installed atoll-config.cmake reports it itself
    message(FATAL_ERROR "${ATOLL_MISSING}")
  endif()
  return()
endif()

# A preset that asks for a device never settles for a Kokkos without it.
if(ATOLL_KOKKOS_DEVICE AND NOT Kokkos_ENABLE_${ATOLL_KOKKOS_DEVICE})
  set(hint "name one that has it by Kokkos_ROOT and KokkosKernels_ROOT")
  if(ATOLL_KOKKOS_DEVICE STREQUAL "OPENMP")
    string(APPEND hint ", or build one by scripts/kokkos-openmp (remove this build folder's CMakeCache.txt then)")
  endif()
  message(FATAL_ERROR "ATOLL_KOKKOS_DEVICE is ${ATOLL_KOKKOS_DEVICE}, but the Kokkos in ${Kokkos_DIR} has only: "
                      "${Kokkos_DEVICES}; ${hint}.")
endif()
message(STATUS "Kokkos: ${Kokkos_DIR} (${Kokkos_DEVICES}); MPI: ${MPI_C_LIBRARIES}; HDF5: ${HDF5_VERSION}")

# MPI is used through its C interface only: without this the deprecated C++ classes of mpi.h would have to be linked.
set_property(TARGET MPI::MPI_C APPEND PROPERTY INTERFACE_COMPILE_DEFINITIONS OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

# Kokkos and Kokkos Kernels as one target. Debian's Kokkos 3.4 (from Trilinos) exports a broken include path on
# Kokkos::kokkos and variables instead of targets elsewhere, so paths are passed as SYSTEM includes.
# Imported, so that the exported targets name it and the including project makes its own.
if(NOT TARGET atoll_kokkos)
  add_library(atoll_kokkos INTERFACE IMPORTED GLOBAL)
  if(Kokkos_INCLUDE_DIRS OR Kokkos_LIBRARIES)
    target_include_directories(atoll_kokkos SYSTEM INTERFACE ${Kokkos_INCLUDE_DIRS} ${KokkosKernels_INCLUDE_DIRS})
  endif()
  if(EXISTS "${Kokkos_DIR}/KokkosConfigCommon.cmake")  # Kokkos' own installation
    target_link_libraries(atoll_kokkos INTERFACE Kokkos::kokkos Kokkos::kokkoskernels)
  else()
    target_link_libraries(atoll_kokkos INTERFACE ${KokkosKernels_LIBRARIES} ${Kokkos_LIBRARIES})
  endif()
endif()

# oneDNN for fp32 products on the host. Debian's configuration file stops CMake with an error when the OpenCL headers are
# absent, even if quiet, so they are looked for first.
set(ATOLL_USE_ONEDNN OFF)
if(NOT ATOLL_ONEDNN STREQUAL "OFF" AND NOT Kokkos_ENABLE_CUDA AND NOT Kokkos_ENABLE_HIP AND NOT Kokkos_ENABLE_SYCL)
  find_package(OpenCL QUIET)
  if(OpenCL_FOUND OR ATOLL_ONEDNN STREQUAL "ON")
    find_package(dnnl QUIET)
  endif()
  if(TARGET DNNL::dnnl)
    set(ATOLL_USE_ONEDNN ON)
  elseif(ATOLL_ONEDNN STREQUAL "ON")
    message(FATAL_ERROR "ATOLL_ONEDNN is ON, but oneDNN was not found. Debian: libdnnl-dev ocl-icd-opencl-dev "
                        "opencl-headers. Elsewhere set dnnl_DIR, or ATOLL_ONEDNN=OFF for Kokkos Kernels.")
  endif()
endif()
message(STATUS "oneDNN for fp32 products: ${ATOLL_USE_ONEDNN}")

# CUDA's libraries where kernels run on its devices: the runtime and cuBLASLt, which come with the compiler, and NCCL.
set(ATOLL_USE_NCCL OFF)
if(Kokkos_ENABLE_CUDA)
  find_package(CUDAToolkit QUIET)
  if(NOT CUDAToolkit_FOUND)
    message(FATAL_ERROR "Kokkos has CUDA, but the CUDA toolkit was not found; set CUDAToolkit_ROOT to its folder.")
  endif()
  if(NOT ATOLL_NCCL STREQUAL "OFF")
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_INCLUDE_DIRS}
      PATH_SUFFIXES include)
    find_library(NCCL_LIBRARY nccl HINTS ${NCCL_ROOT} ENV NCCL_ROOT ENV NCCL_HOME ${CUDAToolkit_LIBRARY_DIR}
      PATH_SUFFIXES lib lib64)
    mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
    if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
      set(ATOLL_USE_NCCL ON)
      if(NOT TARGET atoll_nccl)
        add_library(atoll_nccl INTERFACE IMPORTED GLOBAL)
        target_include_directories(atoll_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR})
        target_link_libraries(atoll_nccl INTERFACE ${NCCL_LIBRARY} CUDA::cudart)
      endif()
    endif()
  endif()
endif()
if(ATOLL_NCCL STREQUAL "ON" AND NOT ATOLL_USE_NCCL AND NOT ATOLL_INSTALLED)
  message(FATAL_ERROR "ATOLL_NCCL is ON, but NCCL cannot be used: it needs a Kokkos with CUDA (it has: ${Kokkos_DEVICES}), "
                      "nccl.h and libnccl; set NCCL_ROOT to NCCL's folder, or ATOLL_NCCL=OFF for MPI alone.")
endif()
message(STATUS "NCCL: ${ATOLL_USE_NCCL}")
