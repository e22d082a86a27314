# ccache where it is found, except for compiler wrappers that it does not know.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER AND NOT Kokkos_ENABLE_CUDA)
  find_program(ATOLL_CCACHE ccache)
  mark_as_advanced(ATOLL_CCACHE)
  if(ATOLL_CCACHE)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ATOLL_CCACHE})
  endif()
endif()

add_library(atoll_options INTERFACE)
target_compile_features(atoll_options INTERFACE cxx_std_20)
target_compile_options(atoll_options INTERFACE -Wall -Wextra -Wshadow)
if(Kokkos_ENABLE_CUDA)  # nvcc cannot evaluate fmt 9's format strings at compile time unless told that constexpr works
  target_compile_definitions(atoll_options INTERFACE FMT_USE_CONSTEXPR=1)
endif()
if(NOT Kokkos_ENABLE_CUDA)  # nvcc's generated code is full of what -Wpedantic warns of
  target_compile_options(atoll_options INTERFACE -Wpedantic)
endif()
if(ATOLL_WERROR)
  target_compile_options(atoll_options INTERFACE -Werror)
endif()
if(ATOLL_NATIVE)
  target_compile_options(atoll_options INTERFACE -march=native)
endif()
if(ATOLL_SANITIZE)
  target_compile_options(atoll_options INTERFACE -fsanitize=${ATOLL_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(atoll_options INTERFACE -fsanitize=${ATOLL_SANITIZE})
endif()

# atoll_library(name SOURCES ... DEPENDS ...): one library a folder, alias atoll::name, includes rooted at the repository.
function(atoll_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS;PRIVATE_DEPENDS" ${ARGN})
  add_library(atoll_${name} ${ARG_SOURCES})
  add_library(atoll::${name} ALIAS atoll_${name})
  set_target_properties(atoll_${name} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(atoll_${name} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/atoll>)
  target_compile_features(atoll_${name} PUBLIC cxx_std_20)
  target_link_libraries(atoll_${name} PUBLIC ${ARG_DEPENDS} PRIVATE ${ARG_PRIVATE_DEPENDS} $<BUILD_INTERFACE:atoll_options>)
  set_property(GLOBAL APPEND PROPERTY ATOLL_LIBRARIES atoll_${name})
endfunction()
