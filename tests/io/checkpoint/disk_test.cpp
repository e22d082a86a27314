/// What disks do to a save: full, read-only, gone under way; very large files; and what HDF5 sees of a checkpoint.
/// SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/hdf5.hpp"
#include "tests/io/checkpoint/saved_run.hpp"

#include <hdf5.h>

#include <csignal>
#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace atl {
namespace {

namespace fs = std::filesystem;

/// Of some hundred kB, so that saving it takes several writes.
LlamaConfig larger_config() { return small_config(16, 1000); }

/// Saving step 2 fails for that reason, and the checkpoint of step 1 stays what it was.
void expect_failed_save(SavedRun& run, const std::string& folder, const std::string& reason) {
  const SaveReport report = run.save(2);
  EXPECT_NE(report.error.find(reason), std::string::npos) << "\"" << report.error << "\" does not say " << reason;
  EXPECT_EQ(report.step, 2);
  EXPECT_EQ(CheckpointStore(folder).entries().size(), 1u);
  EXPECT_EQ(temporaries_in(folder), std::vector<std::string>());
  run.expect_step(folder + "/step_000001", 1);
}
void expect_good_save(SavedRun& run, const std::string& folder) {
  EXPECT_EQ(run.save(2).error, "");
  run.expect_step(folder + "/step_000002", 2);
  run.expect_step(folder + "/step_000001", 1);
  EXPECT_EQ(fs::read_symlink(folder + "/latest"), "step_000002");
}

/// A file system of its own in memory, where this process may mount one.
class SmallDisk {
 public:
  SmallDisk(const std::string& path, std::uint64_t bytes) : path_(path) {
    fs::create_directories(path);
    mounted_ = ::mount("atoll-test", path.c_str(), "tmpfs", 0, ("size=" + std::to_string(bytes)).c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) ::umount2(path_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool mounted() const { return mounted_; }
  /// Takes space until only that much is free; 0 and more, in pages.
  void leave(std::uint64_t bytes) const {
    empty();
    const std::string filler = path_ + "/filler";
    const int file = ::open(filler.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const std::uint64_t free = fs::space(path_).available;
    EXPECT_GE(free, bytes);
    EXPECT_EQ(::posix_fallocate(file, 0, static_cast<::off_t>(free - bytes)), 0);
    ::close(file);
    EXPECT_EQ(fs::space(path_).available, bytes);
  }
  void empty() const { fs::remove(path_ + "/filler"); }

 private:
  std::string path_;
  bool mounted_ = false;
};

class CheckpointDisk : public ::testing::TestWithParam<bool> {
 protected:
  bool async() const { return GetParam(); }
  ScratchFolder scratch;
};
INSTANTIATE_TEST_SUITE_P(, CheckpointDisk, ::testing::Bool(),
                         [](const auto& parameter) { return parameter.param ? "Beside" : "Waiting"; });

TEST_P(CheckpointDisk, FullFileSystem) {
  const SmallDisk disk(scratch / "disk", 4 << 20);
  if (!disk.mounted()) GTEST_SKIP() << "this process may not mount a tmpfs: " << std::strerror(errno);
  const std::string folder = scratch / "disk/checkpoints";
  SavedRun run(folder, larger_config(), async());
  const SaveReport first = run.save(1);
  ASSERT_EQ(first.error, "");
  std::uint64_t numbers = 0;
  for (const StoredPart& part : read_manifest(first.path).parts) numbers += part.range.size() * sizeof(float);
  const std::uint64_t page = 4096, whole_pages = (numbers + page - 1) / page * page;
  // Told before a byte is written.
  for (const std::uint64_t left : {std::uint64_t{0}, page, whole_pages / page / 2 * page, whole_pages - page}) {
    disk.leave(left + 2 * page);
    disk.leave(left);
    expect_failed_save(run, folder, left == 0 ? "" : "bytes free, a checkpoint needs " + std::to_string(numbers));
  }
  // Enough for the numbers, but not for all else: each page more and it fails a little later.
  int failed = 0;
  for (std::uint64_t left = whole_pages;; left += page) {
    ASSERT_LT(left, 2 * whole_pages);
    disk.leave(left);
    if (run.save(3).error.empty()) break;
    expect_failed_save(run, folder, "");
    ++failed;
  }
  EXPECT_GE(failed, 3);
  fs::remove_all(folder + "/step_000003");
  disk.leave(page);
  expect_failed_save(run, folder, "");
  disk.empty();
  expect_good_save(run, folder);
}

TEST_P(CheckpointDisk, FilesMayNotGrow) {
  const std::string folder = scratch / "checkpoints";
  SavedRun run(folder, larger_config(), async());
  ASSERT_EQ(run.save(1).error, "");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const std::uint64_t size = fs::file_size(folder + "/step_000001/data/w00000.h5");
  for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{100}, size / 2, size - 1}) {
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    expect_failed_save(run, folder, ".h5");
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  }
  std::signal(SIGXFSZ, handler);
  expect_good_save(run, folder);
}

/// As an ordinary user, while it lives: nothing is read-only for root.
class OrdinaryUser {
 public:
  OrdinaryUser() : changed_(::geteuid() == 0 && ::seteuid(65534) == 0) {}
  ~OrdinaryUser() {
    if (changed_ && ::seteuid(0) != 0) std::abort();
  }
  OrdinaryUser(const OrdinaryUser&) = delete;
  OrdinaryUser& operator=(const OrdinaryUser&) = delete;

 private:
  bool changed_;
};

TEST_P(CheckpointDisk, ReadOnlyFolder) {
  ::umask(022);  // the ordinary user must be able to read
  const std::string folder = scratch / "checkpoints";
  SavedRun run(folder, larger_config(), async());
  ASSERT_EQ(run.save(1).error, "");
  ASSERT_EQ(::chmod(scratch.path().c_str(), 0755), 0);
  ASSERT_EQ(::chmod(folder.c_str(), 0555), 0);
  {
    const OrdinaryUser user;
    if (::access(folder.c_str(), W_OK) == 0 && ::geteuid() == 0) GTEST_SKIP() << "root that cannot become another user";
    expect_failed_save(run, folder, "Permission denied");
  }
  ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
  expect_good_save(run, folder);
}

TEST_P(CheckpointDisk, FolderThatGoes) {
  const std::string folder = scratch / "checkpoints";
  SavedRun run(folder, larger_config(), async());
  run.begin_save(1);  // the files are there, and may be written; manifest and COMMIT come later
  fs::remove_all(folder);
  const SaveReport report = run.writer.finish().value();
  EXPECT_NE(report.error.find("No such file or directory"), std::string::npos) << report.error;
  EXPECT_FALSE(fs::exists(folder));
  ASSERT_EQ(run.save(1).error, "");
  expect_good_save(run, folder);
  fs::remove_all(folder);
  ASSERT_EQ(run.save(1).error, "");
  expect_good_save(run, folder);
}

TEST_P(CheckpointDisk, StepThatIsThere) {
  const std::string folder = scratch / "checkpoints";
  SavedRun run(folder, larger_config(), async());
  ASSERT_EQ(run.save(1).error, "");
  fs::create_directories(folder + "/step_000002");
  set_content(folder + "/step_000002/mine", "x");
  EXPECT_NE(run.save(2).error.find("is there already; move it away"), std::string::npos);
  EXPECT_EQ(content_of(folder + "/step_000002/mine"), "x");
  fs::remove_all(folder + "/step_000002");
  expect_good_save(run, folder);
}

TEST_P(CheckpointDisk, KeepsTheNewest) {
  const std::string folder = scratch / "checkpoints";
  SavedRun run(folder, small_config(), async(), 2);
  for (const std::int64_t step : {1, 2, 3, 4}) {
    ASSERT_EQ(run.save(step).error, "");
    const auto entries = CheckpointStore(folder).entries();
    ASSERT_EQ(entries.size(), step == 1 ? 1u : 2u);
    EXPECT_EQ(entries.front().step, step);
    run.expect_step(entries.back().path, step == 1 ? 1 : step - 1);
  }
}

// A sparse file: its parts begin behind 2 and 4 GiB, and one is longer than a segment.
TEST(CheckpointFiles, OffsetsOfManyGigabytes) {
  const ScratchFolder scratch;
  const std::uint64_t gigabyte = std::uint64_t{1} << 30, size = 6 * gigabyte + 12;
  const std::size_t unit = (5u << 20) + 3;
  fs::create_directories(scratch / "data");
  const std::string path = scratch / "data/w00000.h5";
  set_content(path, "");
  std::error_code error;
  fs::resize_file(path, size, error);
  if (error) GTEST_SKIP() << "no file of 6 GiB here: " << error.message();
  CheckpointManifest manifest;
  manifest.model = "{}";
  manifest.configuration = manifest.data = nlohmann::ordered_json::object();
  manifest.groups = {{1, 1}};
  manifest.position.tokens_in_round = {0};
  manifest.units = {"unit"};
  manifest.unit_sizes = {unit};
  manifest.files = {{"data/w00000.h5", size, {}}};
  using Quantity = CheckpointArray::Quantity;
  const std::vector<std::pair<Quantity, std::uint64_t>> places{{Quantity::model, 2 * gigabyte - 8},
                                                               {Quantity::moment1, 4 * gigabyte - 4096},
                                                               {Quantity::moment2, size - unit * sizeof(float)}};
  std::vector<float> values(unit);
  const auto value = [](Quantity quantity, std::size_t i) {
    return static_cast<float>(random_uniform(random_key(static_cast<std::uint64_t>(quantity), "large"), i));
  };
  PartFile file(path);
  for (const auto& [quantity, offset] : places) {
    for (std::size_t i = 0; i < unit; ++i) values[i] = value(quantity, i);
    StoredPart part;
    part.array = {quantity, -1};
    part.range = {0, unit};
    part.offset = offset;
    part.hashes = file.write(offset, unit * sizeof(float), [&](std::uint64_t begin, std::uint64_t) {
      return reinterpret_cast<const char*>(values.data()) + begin;
    });
    EXPECT_EQ(part.hashes.size(), 2u);
    manifest.parts.push_back(part);
  }
  file.flush();
  const std::string text = to_text(manifest);
  scratch.write("MANIFEST.json", text);
  scratch.write("COMMIT", commit_text(text));
  CheckpointReader reader(scratch.path());
  for (const auto& [quantity, offset] : places)
    for (const Range range : {Range{0, unit}, Range{(4u << 20) - 3, (4u << 20) + 5}, Range{unit - 1, unit}}) {
      reader.read({quantity, -1}, 0, range, values.data());
      for (std::size_t i = range.begin; i < range.end; ++i)
        ASSERT_EQ(values[i - range.begin], value(quantity, i)) << offset << ", element " << i;
    }
}

// On numbers alone: a unit of more than 2^32 elements.
TEST(CheckpointFiles, UnitsOfManyBillionElements) {
  const std::vector<UnitSpec> units{{"large", {{"a", {70001, 70003}}, {"b", {3}}}}, {"other", {{"c", {5}}}}};
  std::vector<std::size_t> sizes;
  for (const UnitSpec& unit : units) sizes.push_back(ShardLayout(unit, 1).size());
  ASSERT_GT(sizes[0], std::uint64_t{1} << 32);
  CheckpointContents contents;
  contents.groups = 2;
  contents.in_round = contents.moments_differ = true;
  contents.moments = 2;
  const std::vector<GroupShape> groups{{2, 3}, {1, 2}};
  std::uint64_t total = 0;
  std::vector<std::uint64_t> ends(sizes.size() * contents.arrays().size(), 0);
  for (int g = 0; g < 2; ++g)
    for (int shard = 0; shard < groups[static_cast<std::size_t>(g)].shards; ++shard)
      for (int replica = 0; replica < groups[static_cast<std::size_t>(g)].replicas; ++replica) {
        const int rank = replica * groups[static_cast<std::size_t>(g)].shards + shard;
        std::uint64_t mine = 0;
        for (const CheckpointPart& part : parts_of_rank(contents.arrays(), sizes, groups, g, rank)) {
          const auto arrays = contents.arrays();
          const auto array = std::find(arrays.begin(), arrays.end(), part.array) - arrays.begin();
          std::uint64_t& end = ends[static_cast<std::size_t>(array) * sizes.size() + part.unit];
          EXPECT_EQ(part.range.begin, end) << part.array.name() << ", unit " << part.unit;
          end = part.range.end;
          mine += part.range.size();
        }
        total += mine;
        const ProcessGrid grid(groups, g == 0 ? rank : 6 + rank);
        EXPECT_GE(largest_copy(contents, units, grid), mine);
      }
  for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(ends[i], sizes[i % sizes.size()]);
  EXPECT_EQ(total, checkpoint_elements(contents, sizes[0] + sizes[1]));
}

std::int64_t attribute_of(std::int64_t file, const std::string& dataset, const std::string& name) {
  const Hdf5Handle attribute(H5Aopen_by_name(file, dataset.c_str(), name.c_str(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
  std::int64_t value = -1;
  EXPECT_GE(H5Aread(attribute.id(), H5T_NATIVE_INT64, &value), 0) << dataset << ", " << name;
  return value;
}

TEST(CheckpointFiles, Hdf5SeesTheNumbers) {
  const ScratchFolder scratch;
  SavedRun run(scratch / "checkpoints");
  const std::string checkpoint = run.save(1).path;
  const CheckpointManifest manifest = read_manifest(checkpoint);
  run.fill(1);
  const auto masters = run.run.masters();
  const std::string path = checkpoint + "/data/w00000.h5";
  {
    const Hdf5Handle data(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), H5Fclose);
    for (const StoredPart& part : manifest.parts) {
      const std::string name = dataset_name(part, manifest.units);
      EXPECT_EQ(attribute_of(data.id(), name, "begin"), static_cast<std::int64_t>(part.range.begin));
      EXPECT_EQ(attribute_of(data.id(), name, "end"), static_cast<std::int64_t>(part.range.end));
      EXPECT_EQ(attribute_of(data.id(), name, "size"), static_cast<std::int64_t>(manifest.unit_sizes[part.unit]));
    }
  }
  std::vector<std::string> expected;
  {  // closed before model.h5 is read, through which HDF5 opens it again
    const Hdf5File data = Hdf5File::open(path);
    for (const StoredPart& part : manifest.parts) {
      expected.push_back(dataset_name(part, manifest.units));
      EXPECT_EQ(data.shape(expected.back()), std::vector<std::uint64_t>{part.range.size()});
      if (!(part.array == CheckpointArray{})) continue;
      std::vector<float> values(part.range.size());
      data.read_flat(expected.back(), 0, values);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), masters[part.unit].begin() + part.range.begin));
    }
    std::sort(expected.begin(), expected.end());
    EXPECT_EQ(data.datasets(), expected);
  }
  const Hdf5File model = Hdf5File::open(checkpoint + "/model.h5");
  expected.clear();
  const std::vector<UnitSpec> units = llama_units(run.config);
  for (std::size_t u = 0; u < units.size(); ++u) {
    const ShardLayout layout(units[u], 1);
    for (std::size_t i = 0; i < units[u].tensors.size(); ++i) {
      const TensorSpec& tensor = units[u].tensors[i];
      expected.push_back(tensor.name);
      EXPECT_EQ(model.shape(tensor.name), (std::vector<std::uint64_t>{tensor.shape.begin(), tensor.shape.end()}));
      std::vector<float> values(tensor.size());
      model.read_flat(tensor.name, 0, values);
      EXPECT_TRUE(std::equal(values.begin(), values.end(), masters[u].begin() + layout.tensor(i).begin)) << tensor.name;
    }
  }
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(model.datasets(), expected);
}

TEST(CheckpointFiles, TheSameStateIsTheSameBytes) {
  const ScratchFolder scratch;
  SavedRun run(scratch / "one"), other(scratch / "two", small_config(), false);
  const std::string one = run.save(3).path, two = other.save(3).path;
  ASSERT_EQ(files_in(one), files_in(two));
  for (const std::string& name : files_in(one))
    EXPECT_TRUE(content_of(one + "/" + name) == content_of(two + "/" + name)) << name;
}

}  // namespace
}  // namespace atl
