/// The header of safetensors files, from and to JSON. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/huggingface/safetensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace atl {

namespace {

using nlohmann::json;

constexpr std::size_t most_dimensions = 16;  // bounds what hostile shapes can do; Llama's have two

/// Bytes of an element; the file may hold tensors that are no weights.
std::optional<std::uint64_t> bytes_of(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 15> known{{{"F64", 8},
                                                                              {"F32", 4},
                                                                              {"F16", 2},
                                                                              {"BF16", 2},
                                                                              {"F8_E4M3", 1},
                                                                              {"F8_E5M2", 1},
                                                                              {"I64", 8},
                                                                              {"I32", 4},
                                                                              {"I16", 2},
                                                                              {"I8", 1},
                                                                              {"U64", 8},
                                                                              {"U32", 4},
                                                                              {"U16", 2},
                                                                              {"U8", 1},
                                                                              {"BOOL", 1}}};
  for (const auto& [name, bytes] : known)
    if (name == dtype) return bytes;
  return std::nullopt;
}

/// Names are the file's: printable, as up to 6 characters a byte, and cut where they are long.
std::string brief(std::string_view text) {
  std::string shown = json(std::string(text.substr(0, 60))).dump(-1, ' ', true, json::error_handler_t::replace);
  return text.size() > 60 ? shown + "..." : shown;
}

/// Accepts {"name": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, "__metadata__": {"key": "value"}}
/// and nothing else, event by event, so that other text is refused where it first differs.
class HeaderReader {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}
  const std::string& error() const { return error_; }

  bool start_object(std::size_t) {
    if (place_ == Place::start) return to(Place::names);
    if (place_ == Place::entry_value) {
      entry_ = {};
      has_dtype_ = has_shape_ = has_offsets_ = false;
      return to(name_ == "__metadata__" ? Place::metadata : Place::fields);
    }
    return wrong("an object");
  }
  bool key(std::string& text) {
    if (place_ == Place::names) {
      name_ = text;
      if (name_ == "__metadata__" ? has_metadata_ : header_.tensors.count(name_) != 0)
        return fail(fmt::format("has {} twice", brief(name_)));
      return to(Place::entry_value);
    }
    field_ = text;
    if (place_ == Place::metadata) {
      if (header_.metadata.count(field_) != 0) return fail(fmt::format("has __metadata__.{} twice", brief(field_)));
      return to(Place::metadata_value);
    }
    bool* const given = field_ == "dtype"          ? &has_dtype_
                        : field_ == "shape"        ? &has_shape_
                        : field_ == "data_offsets" ? &has_offsets_
                                                   : nullptr;
    if (given == nullptr) return fail(fmt::format("has the unknown key {} of {}", brief(field_), brief(name_)));
    if (*given) return fail(fmt::format("has {} of {} twice", field_, brief(name_)));
    *given = true;
    return to(Place::field_value);
  }
  bool string(std::string& text) {
    if (place_ == Place::metadata_value) {
      header_.metadata[field_] = text;
      return to(Place::metadata);
    }
    if (place_ != Place::field_value || field_ != "dtype") return wrong("a string");
    entry_.dtype = text;
    return to(Place::fields);
  }
  bool start_array(std::size_t) {
    if (place_ != Place::field_value || field_ == "dtype") return wrong("an array");
    return to(field_ == "shape" ? Place::shape : Place::offsets);
  }
  bool number_unsigned(std::uint64_t value) {
    if (place_ != Place::shape && place_ != Place::offsets) return wrong("a number");
    auto& values = place_ == Place::shape ? entry_.shape : offsets_;
    if (values.size() == most_dimensions) return fail(fmt::format("has too many numbers in {}", place()));
    values.push_back(value);
    return true;
  }
  bool end_array() {
    if (place_ == Place::offsets) {
      if (offsets_.size() != 2) return fail(fmt::format("has {} numbers in {}; expected 2", offsets_.size(), place()));
      entry_.begin = offsets_[0], entry_.end = offsets_[1];
      offsets_.clear();
    }
    return to(Place::fields);
  }
  bool end_object() {
    if (place_ == Place::names) return to(Place::end);
    if (place_ == Place::metadata) {
      has_metadata_ = true;
      return to(Place::names);
    }
    for (const auto& [given, field] :
         {std::pair{has_dtype_, "dtype"}, {has_shape_, "shape"}, {has_offsets_, "data_offsets"}})
      if (!given) return fail(fmt::format("has no {} of {}", field, brief(name_)));
    header_.tensors.emplace(name_, std::move(entry_));
    return to(Place::names);
  }
  bool null() { return wrong("null"); }
  bool boolean(bool) { return wrong("true or false"); }
  bool number_integer(std::int64_t value) { return wrong(fmt::format("the negative number {}", value)); }
  bool number_float(double, const std::string&) { return wrong("a number that is no integer of 64 bits"); }
  bool binary(json::binary_t&) { return wrong("binary data"); }
  bool parse_error(std::size_t at, const std::string&, const json::exception&) {
    return fail(fmt::format("is not JSON (at byte {} of it)", at));
  }

 private:
  enum class Place { start, names, entry_value, fields, field_value, shape, offsets, metadata, metadata_value, end };

  bool to(Place place) {
    place_ = place;
    return true;
  }
  bool fail(std::string error) {
    error_ = std::move(error);
    return false;
  }
  std::string place() const {
    switch (place_) {
      case Place::start:
      case Place::end:
        return "the whole header";
      case Place::entry_value:
        return brief(name_);
      case Place::metadata_value:
        return "__metadata__." + brief(field_);
      default:
        return fmt::format("{} of {}", field_, brief(name_));
    }
  }
  bool wrong(const std::string& what) { return fail(fmt::format("has {} as {}", what, place())); }

  SafetensorsHeader& header_;
  std::string error_, name_, field_;
  Place place_ = Place::start;
  SafetensorsEntry entry_;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false, has_metadata_ = false;
};

}  // namespace

std::string_view name_of(WeightType type) {
  return type == WeightType::fp32 ? "fp32" : type == WeightType::bf16 ? "bf16" : "fp16";
}

std::string_view safetensors_name(WeightType type) {
  return type == WeightType::fp32 ? "F32" : type == WeightType::bf16 ? "BF16" : "F16";
}

std::size_t size_of(WeightType type) { return type == WeightType::fp32 ? 4 : 2; }

std::uint64_t SafetensorsTensor::elements() const {
  std::uint64_t n = 1;
  for (const std::uint64_t extent : shape) n *= extent;
  return n;
}

SafetensorsHeader parse_safetensors_header(std::string_view text, std::uint64_t data_bytes, const std::string& where) {
  SafetensorsHeader header;
  HeaderReader reader(header);
  if (!json::sax_parse(text.begin(), text.end(), &reader))
    throw DataError(fmt::format("{}: its header {}", where, reader.error()));

  std::vector<const std::pair<const std::string, SafetensorsEntry>*> in_order;
  for (const auto& entry : header.tensors) {
    const auto& [name, tensor] = entry;
    const auto element = bytes_of(tensor.dtype);
    if (!element)
      throw DataError(
          fmt::format("{}: the tensor {} has the unknown dtype {}", where, brief(name), brief(tensor.dtype)));
    if (tensor.begin > tensor.end || tensor.end > data_bytes)
      throw DataError(
          fmt::format("{}: the tensor {} has data_offsets [{}, {}], outside of the {} bytes that follow the "
                      "header: the file was cut off, or its header is wrong",
                      where, brief(name), tensor.begin, tensor.end, data_bytes));
    // A product that overflows is larger than any file.
    std::uint64_t bytes = *element;
    for (const std::uint64_t extent : tensor.shape)
      bytes = extent != 0 && bytes > std::numeric_limits<std::uint64_t>::max() / extent
                  ? std::numeric_limits<std::uint64_t>::max()
                  : bytes * extent;
    if (std::find(tensor.shape.begin(), tensor.shape.end(), 0u) != tensor.shape.end()) bytes = 0;
    if (bytes != tensor.end - tensor.begin)
      throw DataError(fmt::format("{}: the tensor {} has {} bytes, which is not what shape ({}) of {} takes", where,
                                  brief(name), tensor.end - tensor.begin, fmt::join(tensor.shape, ", "), tensor.dtype));
    in_order.push_back(&entry);
  }
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t end = 0;
  const std::string* before = nullptr;
  for (const auto* entry : in_order) {
    const std::uint64_t begin = entry->second.begin;
    if (begin < end)
      throw DataError(fmt::format("{}: the tensors {} and {} overlap", where, brief(*before), brief(entry->first)));
    if (begin > end)
      throw DataError(fmt::format("{}: bytes {} to {} before the tensor {} belong to no tensor", where, end, begin,
                                  brief(entry->first)));
    end = entry->second.end;
    before = &entry->first;
  }
  if (end != data_bytes)
    throw DataError(fmt::format("{}: {} bytes at its end belong to no tensor", where, data_bytes - end));
  return header;
}

std::string safetensors_header(const std::vector<SafetensorsTensor>& tensors, WeightType type) {
  // In the order of the tensors; transformers wants to be told that they are for PyTorch.
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t at = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    const std::uint64_t end = at + tensor.elements() * size_of(type);
    header[tensor.name] = {{"dtype", safetensors_name(type)}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(text.size() >> (8 * i) & 0xff);
  return bytes + text;
}

}  // namespace atl
