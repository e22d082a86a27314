/// HDF5 files: ranges, types, attributes, errors, reproducible bytes. SPDX-License-Identifier: Apache-2.0
#include "io/hdf5.hpp"

#include "core/errors.hpp"
#include "io/pending_file.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <span>
#include <thread>

namespace atl {
namespace {

using Shape = std::vector<std::uint64_t>;

std::vector<float> counting(std::size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

// Every range of arrays with one to three dimensions, also when one call may move only 3 elements.
TEST(Hdf5, EveryFlatRangeOfEveryShape) {
  const ScratchFolder folder;
  for (const Shape& shape : {Shape{7}, Shape{3, 4}, Shape{4, 1}, Shape{2, 3, 2}}) {
    for (const std::uint64_t limit : {std::uint64_t{512} << 20, std::uint64_t{12}, std::uint64_t{1}}) {
      const std::uint64_t n = std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
      const auto expected = counting(n);
      for (std::uint64_t begin = 0; begin <= n; ++begin) {
        for (std::uint64_t end = begin; end <= n; ++end) {
          const std::string path = folder / "range.h5";
          {
            auto file = Hdf5File::create(path);
            file.limit_call_bytes(limit);
            file.create_dataset("x", shape, Element::f32);
            file.write_flat("x", begin, std::span(expected).subspan(begin, end - begin));
            file.close();
          }
          auto file = Hdf5File::open(path);
          std::vector<float> all(n), part(end - begin);
          file.read_flat("x", 0, all);
          for (std::uint64_t i = 0; i < n; ++i) {
            ASSERT_EQ(all[i], i >= begin && i < end ? expected[i] : 0.0f) << "range [" << begin << ", " << end << ")";
          }
          file.limit_call_bytes(limit);
          file.read_flat("x", begin, part);
          ASSERT_TRUE(std::equal(part.begin(), part.end(), expected.begin() + static_cast<std::ptrdiff_t>(begin)));
        }
      }
    }
  }
}

template <class T>
void expect_round_trip(const std::vector<T>& values, Stored type) {
  const ScratchFolder folder;
  auto file = Hdf5File::create(folder / "x.h5");
  file.create_dataset("x", {values.size()}, type);
  file.write_flat("x", 0, values);
  file.close();
  const auto again = Hdf5File::open(folder / "x.h5");
  std::vector<T> read(values.size());
  again.read_flat("x", 0, read);
  EXPECT_EQ(again.type("x"), type);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_TRUE(read[i] == values[i]) << name_of(type) << " " << i;
}

TEST(Hdf5, KeepsEveryType) {
  expect_round_trip<double>({0.1, -1e300}, Stored::f64);
  expect_round_trip<float>({0.1f, -1e38f}, Stored::f32);
  expect_round_trip<bf16>({bf16(1.5f), bf16(-3e38f)}, Stored::u16);
  expect_round_trip<std::uint16_t>({0, 65535}, Stored::u16);
  expect_round_trip<std::int32_t>({-2147483647, 7}, Stored::i32);
  expect_round_trip<std::uint32_t>({0, 4294967295u}, Stored::u32);
  expect_round_trip<std::int64_t>({-9007199254740993, 1}, Stored::i64);
  expect_round_trip<std::uint64_t>({18446744073709551615u, 1}, Stored::u64);
}

TEST(Hdf5, ListsNamesShapesAndGrows) {
  const ScratchFolder folder;
  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  auto file = Hdf5File::create(folder / "x.h5");
  file.create_dataset(name, {3, 5}, Element::f32);
  file.create_dataset("optimizer/moments/m", {0}, Element::f64);
  file.create_growing_dataset("tokens", Stored::u16, 4);
  for (const std::uint64_t length : {3u, 9u}) {
    const std::uint64_t before = file.size("tokens");
    file.extend("tokens", length);
    file.write_flat("tokens", before, std::vector<std::uint16_t>(length - before, static_cast<std::uint16_t>(length)));
  }
  file.close();
  const auto again = Hdf5File::open(folder / "x.h5");
  EXPECT_EQ(again.datasets(), (std::vector<std::string>{name, "optimizer/moments/m", "tokens"}));
  EXPECT_EQ(again.shape(name), (Shape{3, 5}));
  EXPECT_EQ(again.size("optimizer/moments/m"), 0u);
  std::vector<std::uint16_t> tokens(9);
  again.read_flat("tokens", 0, tokens);
  EXPECT_EQ(tokens, (std::vector<std::uint16_t>{3, 3, 3, 9, 9, 9, 9, 9, 9}));
  EXPECT_FALSE(again.has_dataset("optimizer"));
}

TEST(Hdf5, ConvertsOnlyBetweenRealTypes) {
  const ScratchFolder folder;
  auto file = Hdf5File::create(folder / "x.h5");
  file.create_dataset("x", {2}, Element::f32);
  file.write_flat("x", 0, std::vector<double>{0.5, 0.1});
  std::vector<double> real(2);
  file.read_flat("x", 0, real);
  EXPECT_EQ(real, (std::vector<double>{0.5, 0.1f}));
  std::vector<std::int32_t> whole(2);
  const auto message = message_of<DataError>([&] { file.read_flat("x", 0, whole); });
  EXPECT_EQ(message, (folder / "x.h5") + ": data set 'x' holds fp32, not int32");
}

TEST(Hdf5, Attributes) {
  const ScratchFolder folder;
  auto file = Hdf5File::create(folder / "x.h5");
  file.set_string_attribute("text", "grün");
  file.set_string_attribute("empty", "");
  file.set_integer_attribute("count", -9007199254740993);
  file.set_real_attribute("rate", 0.1);
  file.close();
  const auto again = Hdf5File::open(folder / "x.h5");
  EXPECT_EQ(again.string_attribute("text"), "grün");
  EXPECT_EQ(again.string_attribute("empty"), "");
  EXPECT_EQ(again.integer_attribute("count"), -9007199254740993);
  EXPECT_EQ(again.real_attribute("rate"), 0.1);
  EXPECT_FALSE(again.has_attribute("none"));
  EXPECT_NE(message_of<DataError>([&] { again.integer_attribute("text"); }).find("'text' is not one integer"),
            std::string::npos);
  EXPECT_NE(message_of<DataError>([&] { again.real_attribute("none"); }).find("has no attribute 'none'"),
            std::string::npos);
}

TEST(Hdf5, ErrorsNameFileObjectAndReason) {
  const ScratchFolder folder;
  const auto opening = [](const std::string& path) { return message_of<DataError>([&] { Hdf5File::open(path); }); };
  EXPECT_EQ(opening(folder / "none.h5"), (folder / "none.h5") + ": cannot read it: No such file or directory");
  EXPECT_EQ(opening(folder.path()), folder.path() + ": is a folder, not an HDF5 file");
  const auto text = folder.write("text.h5", std::string(5000, 'x'));
  EXPECT_EQ(opening(text), text + ": not a readable HDF5 file (file signature not found)");

  const std::string path = folder / "x.h5";
  auto file = Hdf5File::create(path);
  file.create_dataset("x", {100, 100}, Element::f32);
  file.write_flat("x", 0, std::vector<float>(10000, 1.0f));
  std::vector<float> some(3);
  EXPECT_EQ(message_of<DataError>([&] { file.read_flat("x", 9998, some); }),
            path + ": data set 'x' has 10000 elements: [9998, 10001) is not inside");
  EXPECT_EQ(message_of<DataError>([&] { file.read_flat("y", 0, some); }), path + ": has no data set 'y'");
  EXPECT_NE(message_of<DataError>([&] {
              file.create_dataset("x", {1}, Element::f32);
            }).find("data set 'x': H5Dcreate2 failed: "),
            std::string::npos);
  file.close();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_NE(opening(path).find("truncated file"), std::string::npos) << opening(path);
  EXPECT_NE(message_of<DataError>([&] { Hdf5File::create(folder / "no/such/x.h5"); }).find("No such file or directory"),
            std::string::npos);
}

TEST(Hdf5, SameContentIsSameBytes) {
  const ScratchFolder folder;
  for (const char* name : {"a.h5", "b.h5"}) {
    auto file = Hdf5File::create(folder / name);
    file.create_dataset("group/x", {10, 3}, Element::f64);
    file.write_flat("group/x", 4, std::vector<double>{1, 2, 3});
    file.set_integer_attribute("one", 1);
    file.close();
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // time stamps of HDF5 count seconds
  }
  EXPECT_EQ(content_of(folder / "a.h5"), content_of(folder / "b.h5"));
}

TEST(PendingFile, AppearsOnlyWhenPublished) {
  const ScratchFolder folder;
  const std::string path = folder / "new/x.txt";
  {
    const PendingFile abandoned(path);
    std::ofstream(abandoned.temporary()) << "half";
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "new"));
  PendingFile pending(path);
  std::ofstream(pending.temporary()) << "whole";
  EXPECT_FALSE(std::filesystem::exists(path));
  pending.publish();
  EXPECT_EQ(content_of(path), "whole");
  EXPECT_FALSE(std::filesystem::exists(pending.temporary()));
  const auto blocked = folder.write("file", "");
  EXPECT_NE(message_of<DataError>([&] { PendingFile(blocked + "/x"); }).find("cannot make the folder " + blocked),
            std::string::npos);
}

}  // namespace
}  // namespace atl
