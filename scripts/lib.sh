# Shared by the scripts of this folder: messages, Debian packages, running MPI. SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced, never run. Expects `set -euo pipefail` and leaves the working directory alone.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
die() {  # die CODE MESSAGE...: 2 is wrong usage or a missing package, as for the program itself
  local code=$1
  shift
  warn "$(basename "$0"): $*"
  exit "$code"
}

# What a build needs, as Debian and Ubuntu call it.
build_packages=(g++ cmake ninja-build pkg-config libtrilinos-kokkos-dev libtrilinos-kokkos-kernels-dev libopenblas-dev
  liblapack-dev mpich libmpich-dev libhdf5-dev libtomlplusplus-dev libcli11-dev nlohmann-json3-dev libspdlog-dev
  libfmt-dev libxxhash-dev libpcre2-dev libutf8proc-dev zlib1g-dev libzstd-dev libdnnl-dev ocl-icd-opencl-dev opencl-headers
  libgtest-dev libgmock-dev)
# What the fuzz targets need besides.
fuzz_packages=(clang)

is_debian() { [ -r /etc/debian_version ] && command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# The packages of the arguments that are not installed, one a line.
missing_packages() {
  local package
  for package in "$@"; do
    # "|| true": dpkg-query fails for a name it has never heard of, which is an answer here, not an error.
    case "$(dpkg-query -W -f '${db:Status-Abbrev}' "$package" 2>/dev/null || true)" in
      ii*) ;;
      *) printf '%s\n' "$package" ;;
    esac
  done
}

# Those of build_packages that are missing; no MPICH where another MPI library is set up.
missing_build_packages() {
  local package
  missing_packages "${build_packages[@]}" | while read -r package; do
    case $package in
      mpich | libmpich-dev) ! { command -v mpiexec && command -v mpicc; } >/dev/null || continue ;;
    esac
    say "$package"
  done
}

# How to become root without asking anybody: nothing for root, `sudo -n` where it works, an error otherwise.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo -n "$@"
  fi
}
can_be_root() { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo -n true 2>/dev/null; }; }

# Installs the missing ones of the packages given; silent, quick and without network when none is missing.
install_packages() {
  local missing
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! can_be_root; then
    warn "Missing Debian packages; with an administrator's rights install them by"
    warn "  sudo apt-get install --no-install-recommends ${missing[*]}"
    return 2
  fi
  say "Installing ${#missing[@]} Debian packages: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { as_root env DEBIAN_FRONTEND=noninteractive apt-get update -q &&
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"; } \
    >"$log" 2>&1; then
    tail -n 25 "$log" >&2
    rm -f "$log"
    warn "apt-get could not install them (see above)."
    return 1
  fi
  rm -f "$log"
}

# The tools without which CMake cannot even look for libraries: a line for each one that is missing.
missing_tools() {
  command -v "${CXX:-c++}" >/dev/null || say "a C++20 compiler, g++ 12 or clang 14 or newer (Spack: gcc)"
  command -v cmake >/dev/null || say "CMake 3.25 or newer (Spack: cmake)"
  command -v ninja >/dev/null || say "Ninja (Spack: ninja)"
  command -v pkg-config >/dev/null || command -v pkgconf >/dev/null || say "pkg-config (Spack: pkgconf)"
  command -v mpiexec >/dev/null || say "mpiexec of an MPI-3 library (Spack: mpich or openmpi; or the system's own)"
}

other_systems_help() {
  warn "On a cluster, load what its module system has, for example"
  warn "  module load cmake ninja gcc mpich hdf5 kokkos kokkos-kernels"
  warn "and build the rest with Spack (https://spack.io), once, in a folder that the compute nodes see too:"
  warn "  spack install cmake ninja pkgconf mpich hdf5 kokkos kokkos-kernels+blas openblas fmt spdlog cli11 \\"
  warn "                tomlplusplus nlohmann-json xxhash pcre2 utf8proc zlib zstd googletest+gmock"
  warn "  spack load    (the same names)"
  warn "Libraries in a folder of your own are found with CMAKE_PREFIX_PATH. See docs/install.md."
}

# require_packages yes|no: makes sure that a build can start. On Debian and Ubuntu missing packages are installed if
# that is wanted ("yes") and allowed. Otherwise, as a module or Spack may stand in for a package, CMake has the last
# word: only tools are looked for here, and the configuration of the build names all libraries that it does not find.
require_packages() {
  local may_install=$1 missing=()
  if is_debian; then
    mapfile -t missing < <(missing_build_packages)
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$may_install" = yes ] && can_be_root; then
      install_packages "${missing[@]}" && return 0
      exit 1
    fi
  fi
  local tools
  tools=$(missing_tools)
  if [ -n "$tools" ]; then
    warn "Not found, and needed before anything can be built:"
    printf '%s\n' "$tools" | sed 's/^/  - /' >&2
    packages_help "${missing[@]+"${missing[@]}"}"
    exit 2
  fi
}

# What to do about missing packages, for whoever may not install them here.
packages_help() {
  if is_debian; then
    if [ $# -gt 0 ]; then
      warn "An administrator of this machine can install all of it by"
      warn "  sudo apt-get install --no-install-recommends $*"
    fi
  else
    other_systems_help
  fi
}

cores() { nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2; }

# How many compilers at once: bounded, so that a laptop of many cores and little memory does not swap, as one takes up to
# 1.5 GB here.
build_jobs() {
  local jobs memory
  jobs=$(cores)
  memory=$(awk '/^MemAvailable/ { print int($2 / 1500000) }' /proc/meminfo 2>/dev/null || true)
  if [ -n "$memory" ] && [ "$memory" -ge 1 ] && [ "$memory" -lt "$jobs" ]; then jobs=$memory; fi
  echo "$jobs"
}

# mpi_run RANKS COMMAND...: starts MPI ranks, also more of them than there are cores. Open MPI refuses that, and
# root, unless told otherwise; other libraries need nothing.
mpi_run() {
  local ranks=$1
  shift
  local flags=()
  if command mpiexec --version 2>&1 | grep -qi 'open *mpi\|openrte\|prrte'; then
    flags=(--oversubscribe)
    if [ "$(id -u)" = 0 ]; then
      export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    fi
  fi
  command mpiexec ${flags[@]+"${flags[@]}"} -n "$ranks" "$@"
}

# build_preset PRESET TARGET [arguments of cmake]: configures and builds. CMake's output goes to a file unless something
# goes wrong; Ninja's progress is shown.
build_preset() {
  local preset=$1 target=$2 log
  shift 2
  log=$root/build/$preset/configure.log
  mkdir -p "$(dirname "$log")"
  if ! (cd "$root" && cmake --preset "$preset" "$@") >"$log" 2>&1; then
    sed -n '/^CMake Error/,$p' "$log" >&2
    local missing=()
    if is_debian; then mapfile -t missing < <(missing_build_packages); fi
    packages_help "${missing[@]+"${missing[@]}"}"
    die 2 "CMake could not configure the preset $preset: see above, and all of its output in $log"
  fi
  grep -A8 '^CMake Warning' "$log" >&2 || true
  (cd "$root" && cmake --build --preset "$preset" --target "$target" -- -j "$(build_jobs)") ||
    die 1 "the build of preset $preset failed"
}
