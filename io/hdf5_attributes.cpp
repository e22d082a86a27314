/// Attributes of a file's root. SPDX-License-Identifier: Apache-2.0
#include "io/hdf5.hpp"
#include "io/hdf5_calls.hpp"

#include <cstring>

namespace atl {

namespace {

std::string place_of(const std::string& path, const std::string& name) { return path + ": attribute '" + name + "'"; }

/// The attribute's type, after a check that it is one value of the class asked for.
Hdf5Handle type_of(const Hdf5Handle& attribute, H5T_class_t wanted, const char* wanted_name, const std::string& place) {
  Hdf5Handle type(ATOLL_HDF5(H5Aget_type(attribute.id()), place), H5Tclose);
  const Hdf5Handle space(ATOLL_HDF5(H5Aget_space(attribute.id()), place), H5Sclose);
  if (H5Tget_class(type.id()) != wanted || H5Sget_simple_extent_npoints(space.id()) != 1) {
    throw DataError(place + " is not one " + wanted_name);
  }
  return type;
}

}  // namespace

bool Hdf5File::has_attribute(const std::string& name) const { return H5Aexists(file_.id(), name.c_str()) > 0; }

void Hdf5File::set_attribute(std::int64_t object, const std::string& name, std::int64_t file_type,
                             std::int64_t memory_type, const void* value) {
  const auto place = [&] { return place_of(path_, name); };
  const Hdf5Handle space(ATOLL_HDF5(H5Screate(H5S_SCALAR), place()), H5Sclose);
  const Hdf5Handle attribute(
      ATOLL_HDF5(H5Acreate2(object, name.c_str(), file_type, space.id(), H5P_DEFAULT, H5P_DEFAULT), place()), H5Aclose);
  ATOLL_HDF5(H5Awrite(attribute.id(), memory_type, value), place());
}

void Hdf5File::set_string_attribute(const std::string& name, const std::string& value) {
  const Hdf5Handle type(ATOLL_HDF5(H5Tcopy(H5T_C_S1), place_of(path_, name)), H5Tclose);
  ATOLL_HDF5(H5Tset_size(type.id(), value.size() + 1), place_of(path_, name));
  ATOLL_HDF5(H5Tset_cset(type.id(), H5T_CSET_UTF8), place_of(path_, name));
  set_attribute(file_.id(), name, type.id(), type.id(), value.c_str());
}

void Hdf5File::set_integer_attribute(const std::string& name, std::int64_t value) {
  set_attribute(file_.id(), name, hdf5::file_type(Stored::i64), hdf5::memory_type(Stored::i64), &value);
}

void Hdf5File::set_integer_attribute_of(const std::string& dataset_name, const std::string& name, std::int64_t value) {
  set_attribute(dataset(dataset_name).handle.id(), name, hdf5::file_type(Stored::i64), hdf5::memory_type(Stored::i64),
                &value);
}

void Hdf5File::set_real_attribute(const std::string& name, double value) {
  set_attribute(file_.id(), name, hdf5::file_type(Stored::f64), hdf5::memory_type(Stored::f64), &value);
}

Hdf5Handle Hdf5File::open_attribute(const std::string& name) const {
  if (!has_attribute(name)) throw DataError(path_ + ": has no attribute '" + name + "'");
  return {ATOLL_HDF5(H5Aopen(file_.id(), name.c_str(), H5P_DEFAULT), place_of(path_, name)), H5Aclose};
}

std::string Hdf5File::string_attribute(const std::string& name) const {
  const auto place = [&] { return place_of(path_, name); };
  const Hdf5Handle attribute = open_attribute(name);
  const Hdf5Handle type = type_of(attribute, H5T_STRING, "string", place());
  if (H5Tis_variable_str(type.id()) > 0) {  // as h5py writes them: HDF5 allocates
    char* text = nullptr;
    ATOLL_HDF5(H5Aread(attribute.id(), type.id(), &text), place());
    const std::string result = text != nullptr ? text : "";
    H5free_memory(text);
    return result;
  }
  std::string result(H5Tget_size(type.id()), '\0');
  ATOLL_HDF5(H5Aread(attribute.id(), type.id(), result.data()), place());
  result.resize(::strnlen(result.data(), result.size()));
  return result;
}

std::int64_t Hdf5File::integer_attribute(const std::string& name) const {
  const Hdf5Handle attribute = open_attribute(name);
  type_of(attribute, H5T_INTEGER, "integer", place_of(path_, name));
  std::int64_t value = 0;
  ATOLL_HDF5(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), place_of(path_, name));
  return value;
}

double Hdf5File::real_attribute(const std::string& name) const {
  const Hdf5Handle attribute = open_attribute(name);
  type_of(attribute, H5T_FLOAT, "real number", place_of(path_, name));
  double value = 0;
  ATOLL_HDF5(H5Aread(attribute.id(), H5T_NATIVE_DOUBLE, &value), place_of(path_, name));
  return value;
}

}  // namespace atl
