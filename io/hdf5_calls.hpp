/// What the sources that call HDF5 share: the check of every call, the types. SPDX-License-Identifier: Apache-2.0
///
/// Private to io/hdf5.cpp and io/hdf5_attributes.cpp, which alone include HDF5's header.
#pragma once

#include "core/errors.hpp"
#include "io/hdf5.hpp"

#include <fmt/core.h>
#include <hdf5.h>

#include <string>
#include <string_view>

namespace atl::hdf5 {

std::string innermost_error();   ///< HDF5's reason for the last failure
hid_t memory_type(Stored type);  ///< H5T_NATIVE_FLOAT and its like
hid_t file_type(Stored type);    ///< H5T_IEEE_F32LE and its like

template <class Result, class Place>
Result check(Result result, std::string_view expression, const Place& place) {
  if (result < 0) {
    const auto function = expression.substr(0, expression.find('('));
    throw DataError(fmt::format("{}: {} failed: {}", place(), function, innermost_error()));
  }
  return result;
}

}  // namespace atl::hdf5

/// The result of a call of HDF5, or a DataError with `place` (a string, made only when needed), the function and the
/// reason.
#define ATOLL_HDF5(expression, place) \
  ::atl::hdf5::check((expression), #expression, [&]() -> std::string { return (place); })
