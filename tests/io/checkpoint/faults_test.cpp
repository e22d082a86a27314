/// Whatever is wrong in a checkpoint, it is refused with a reason, and never loaded. SPDX-License-Identifier:
/// Apache-2.0
#include "core/errors.hpp"
#include "tests/io/checkpoint/saved_run.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace atl {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

class CheckpointFaults : public ::testing::Test {
 protected:
  /// Rank 0 changes files, then all go on.
  void change(const std::function<void()>& work) {
    if (run.world.rank() == 0) work();
    run.world.barrier();
  }
  void expect_refused(const std::string& word, const std::string& what) {
    const std::string reason = run.refusal(checkpoint);
    if (reason.empty())
      ADD_FAILURE() << what << " was accepted";
    else
      EXPECT_TRUE(reason.front() != '?' && reason.find(word) != std::string::npos) << what << ": " << reason;
  }
  /// Makes the change, expects a refusal for that reason, and puts everything back.
  void expect_refused(const std::string& word, const std::string& what, const std::function<void()>& work) {
    change([&] { fs::copy(checkpoint, folder / "kept", fs::copy_options::recursive); });
    change(work);
    expect_refused(word, what);
    run.world.barrier();
    change([&] {
      fs::remove_all(checkpoint);
      fs::rename(folder / "kept", checkpoint);
    });
  }
  /// A change of the manifest by somebody who also writes the right hash.
  void expect_manifest_refused(const std::string& word, const std::string& what,
                               const std::function<void(Json&)>& edit) {
    expect_refused(word, what, [&] {
      Json json = Json::parse(content_of(checkpoint + "/MANIFEST.json"));
      edit(json);
      set_manifest(json.dump());
    });
  }
  /// Flips a bit of every `stride`-th byte of every file; `reader` must refuse each, naming the file.
  void expect_flips_refused(SavedRun& reader, std::size_t stride) {
    std::size_t tried = 0, faults = 0;
    for (const std::string& name : files_in(checkpoint)) {
      const std::string content = content_of(checkpoint + "/" + name);
      const int file = ::open((checkpoint + "/" + name).c_str(), O_WRONLY | O_CLOEXEC);
      ASSERT_GE(file, 0);
      for (std::size_t offset = 0; offset < content.size() && faults < 10; offset += stride, ++tried) {
        const char wrong = static_cast<char>(content[offset] ^ (1 << (offset % 8)));
        const auto put = [&](char byte) {
          change([&] { ASSERT_EQ(::pwrite(file, &byte, 1, static_cast<::off_t>(offset)), 1); });
        };
        put(wrong);
        const std::string reason = reader.refusal(checkpoint);
        const std::string named = name == "COMMIT" ? "MANIFEST.json" : name;
        const bool refused = !reason.empty() && reason.front() != '?' && reason.find(named) != std::string::npos;
        EXPECT_TRUE(refused) << name << ", offset " << offset << ": " << reason;
        faults += refused ? 0 : 1;
        run.world.barrier();
        put(content[offset]);
      }
      ::close(file);
    }
    RecordProperty("offsets", static_cast<int>(tried));
    if (run.world.rank() == 0) std::printf("%zu offsets tried\n", tried);
    EXPECT_EQ(reader.refusal(checkpoint), "");
  }
  void set_manifest(const std::string& text) {
    set_content(checkpoint + "/MANIFEST.json", text);
    set_content(checkpoint + "/COMMIT", commit_text(text));
  }

  Communicator all{MPI_COMM_WORLD};
  SharedFolder folder{all};
  SavedRun run{folder / "checkpoints"};  // one data file, which all ranks write
  std::string checkpoint = run.save(7).path;
};

TEST_F(CheckpointFaults, TheCheckpointItselfIsGood) {
  EXPECT_EQ(files_in(checkpoint), (std::vector<std::string>{"COMMIT", "MANIFEST.json", "data/w00000.h5", "model.h5"}));
  run.expect_step(checkpoint, 7);
}

// One rank: every byte. Several ranks, and as many groups: every byte would take minutes.
TEST_F(CheckpointFaults, OneWrongBitAnywhereIsRefused) { expect_flips_refused(run, run.world.size() == 1 ? 1 : 23); }

// Then the groups' own models are not what training goes on from.
TEST_F(CheckpointFaults, OneWrongBitIsRefusedByAnotherNumberOfGroups) {
  if (run.world.size() == 1) GTEST_SKIP() << "one rank has no other number of groups";
  SavedRun one_group(folder / "one", small_config(), true, 0, 1, 1);
  expect_flips_refused(one_group, 29);
}

TEST_F(CheckpointFaults, OtherLengthsAreRefused) {
  for (const std::string& name : files_in(checkpoint)) {
    const std::string path = checkpoint + "/" + name;
    const std::uint64_t size = fs::file_size(path);
    const std::string word = name == "COMMIT" || name == "MANIFEST.json" ? "does not have the hash" : "cut off";
    for (const std::uint64_t length : {std::uint64_t{0}, std::uint64_t{1}, size / 2, size - 1, size + 1, size + 4096})
      expect_refused(word, name + " of " + std::to_string(length) + " bytes", [&] { fs::resize_file(path, length); });
  }
}

TEST_F(CheckpointFaults, MissingFilesAreRefused) {
  for (const std::string& name : files_in(checkpoint)) {
    expect_refused("missing", name + " removed", [&] { fs::remove(checkpoint + "/" + name); });
    expect_refused(name == "COMMIT" || name == "MANIFEST.json" ? name : "missing", name + " is a folder", [&] {
      fs::remove(checkpoint + "/" + name);
      fs::create_directory(checkpoint + "/" + name);
    });
  }
  expect_refused("not a complete checkpoint", "an empty folder", [&] {
    fs::remove_all(checkpoint);
    fs::create_directory(checkpoint);
  });
  expect_refused("MANIFEST.json: missing from a checkpoint that has a COMMIT", "only COMMIT", [&] {
    fs::rename(checkpoint + "/COMMIT", folder / "COMMIT");
    fs::remove_all(checkpoint);
    fs::create_directory(checkpoint);
    fs::rename(folder / "COMMIT", checkpoint + "/COMMIT");
  });
  expect_refused("not a complete checkpoint", "no folder", [&] { fs::remove_all(checkpoint); });
  run.expect_step(checkpoint, 7);
}

TEST_F(CheckpointFaults, FilesOfAnotherCheckpointAreRefused) {
  const std::string other_step = run.save(8).path;
  SavedRun another(folder / "another");
  const std::string other_run = another.save(7, "b run").path;
  const auto take = [&](const std::string& from, const std::vector<std::string>& names) {
    return [=, this] {
      for (const std::string& name : names)
        fs::copy_file(from + "/" + name, checkpoint + "/" + name, fs::copy_options::overwrite_existing);
    };
  };
  expect_refused("data/w00000.h5: corrupt", "data of another step", take(other_step, {"data/w00000.h5"}));
  expect_refused("model.h5: corrupt", "model.h5 of another step", take(other_step, {"model.h5"}));
  expect_refused("does not have the hash", "manifest of another step", take(other_step, {"MANIFEST.json"}));
  expect_refused("does not have the hash", "COMMIT of another step", take(other_step, {"COMMIT"}));
  expect_refused("does not have the hash", "COMMIT of another run", take(other_run, {"COMMIT"}));
  expect_refused("corrupt", "manifest and COMMIT of another step", take(other_step, {"MANIFEST.json", "COMMIT"}));
  SavedRun larger(folder / "larger", small_config(8));
  const std::string other_model = larger.save(7).path;
  expect_refused("bytes", "manifest and COMMIT of another model", take(other_model, {"MANIFEST.json", "COMMIT"}));
  expect_refused("other units or sizes", "a checkpoint of another model", take(other_model, files_in(other_model)));
  run.expect_step(checkpoint, 7);
  run.expect_step(other_step, 8);
}

TEST_F(CheckpointFaults, ManifestsThatCannotBe) {
  const auto part = [](std::size_t field, Json value) { return [=](Json& json) { json["parts"][0][field] = value; }; };
  const Json before = Json::parse(content_of(checkpoint + "/MANIFEST.json"));
  const std::uint64_t size = before["files"][1]["size"], unit = before["units"][0]["size"];
  expect_manifest_refused("of version 2, this program reads version 1", "a newer one",
                          [](Json& json) { json["version"] = 2; });
  expect_manifest_refused("not the manifest of a checkpoint", "another format",
                          [](Json& json) { json["format"] = "x"; });
  expect_manifest_refused("not the manifest of a checkpoint", "no format", [](Json& json) { json.erase("format"); });
  for (const auto& [key, value] : before.items()) {
    if (key == "format") continue;
    expect_manifest_refused(key, "no " + key, [&, name = key](Json& json) { json.erase(name); });
    for (const Json& wrong : {Json(), Json(true), Json{{"x", 1}}, Json::array({Json::array()})})
      if (key != "configuration" && key != "data" && key != "model")
        expect_manifest_refused(key == "parts" && wrong.is_null() ? "no array" : "MANIFEST.json",
                                key + " = " + wrong.dump(), [&, name = key](Json& json) { json[name] = wrong; });
  }
  expect_manifest_refused("neither fp32 nor fp64", "bf16", [](Json& json) { json["element"] = "bf16"; });
  expect_manifest_refused("not fp", "another element", [](Json& json) { json["element"] = "fp64"; });
  for (const auto& [key, value] : before["position"].items())
    expect_manifest_refused(key, "no " + key, [&, name = key](Json& json) { json["position"].erase(name); });
  expect_manifest_refused("tokens", "tokens of another number of groups",
                          [](Json& json) { json["position"]["tokens_in_round"] = Json::array(); });
  expect_manifest_refused("group", "no groups", [](Json& json) { json["groups"] = Json::array(); });
  expect_manifest_refused("group", "a group of no ranks", [](Json& json) { json["groups"][0]["shards"] = 0; });

  expect_manifest_refused("no array", "an unknown array", part(0, "model2"));
  expect_manifest_refused("a unit, range or file that is not there", "unit 99", part(1, 99));
  expect_manifest_refused("a unit, range or file that is not there", "file 99", part(4, 99));
  expect_manifest_refused("a unit, range or file that is not there", "a negative begin", part(2, -1));
  expect_manifest_refused("a unit, range or file that is not there", "an empty part", part(3, 0));
  expect_manifest_refused("a unit, range or file that is not there", "an end behind the unit", part(3, unit + 1));
  expect_manifest_refused("inside its file", "offset at the end", part(5, size));
  expect_manifest_refused("inside its file", "offset just too far", part(5, size - unit * 4 + 1));
  expect_manifest_refused("inside its file", "offset that overflows", part(5, UINT64_MAX - 7));
  expect_manifest_refused("corrupt", "another offset", part(5, 0));
  expect_manifest_refused("hexadecimal", "half a hash", part(6, "01234567"));
  expect_manifest_refused("hexadecimal", "a hash in capitals", part(6, "ABCDABCDABCDABCD"));
  expect_manifest_refused("hash", "no hash", part(6, ""));
  expect_manifest_refused("hash", "two hashes", part(6, "01234567890123450123456789012345"));
  expect_manifest_refused("corrupt", "another hash", part(6, "0123456789012345"));

  expect_manifest_refused("do not make up the unit", "a gap at the start", part(2, 1));
  expect_manifest_refused("do not make up the unit", "a gap at the end", part(3, unit - 1));
  expect_manifest_refused("do not make up the unit", "a missing part", [](Json& json) { json["parts"].erase(0); });
  expect_manifest_refused("do not make up the unit", "a part twice",
                          [](Json& json) { json["parts"].push_back(json["parts"][0]); });
  expect_manifest_refused("do not make up the unit", "parts that overlap", [&](Json& json) {
    json["parts"].push_back(json["parts"][0]);
    json["parts"][0][3] = 2;
    json["parts"].back()[2] = 1;
  });
  expect_manifest_refused("no array", "no model", [](Json& json) {
    Json parts = Json::array();
    for (const Json& one : json["parts"])
      if (one[0] != "model" && one[0] != "groups/g0000/model") parts.push_back(one);
    json["parts"] = parts;
  });
  for (const std::int64_t length : {std::int64_t{1} << 60, std::int64_t{-1}, std::int64_t{17} << 20})
    expect_manifest_refused("inside its file", "a rest of " + std::to_string(length) + " bytes",
                            [&](Json& json) { json["files"][1]["rest"][0][1] = length; });
  expect_manifest_refused("file", "no files", [](Json& json) { json["files"] = Json::array(); });
  expect_manifest_refused("missing", "a file of another name", [](Json& json) { json["files"][1]["name"] = "x"; });
}

TEST_F(CheckpointFaults, TextThatIsNoManifest) {
  for (const std::string text :
       {"", "\0", "{", "null", "[]", "17", "\"MANIFEST\"", "{\"format\":\"atoll-checkpoint\"}", "\xff\xfe{}"})
    expect_refused("MANIFEST.json", "the text " + text, [&] { set_manifest(text); });
  expect_refused("MANIFEST.json", "deep nesting", [&] { set_manifest(std::string(10000, '[')); });
}

TEST_F(CheckpointFaults, VerifyFindsWhatRestoringDoesNotRead) {
  change([&] {
    Json json = Json::parse(content_of(checkpoint + "/MANIFEST.json"));
    json["files"][1]["rest"].erase(0);
    set_manifest(json.dump());
  });
  CheckpointReader reader(checkpoint);
  EXPECT_NE(message_of<DataError>([&] { reader.verify_all([](std::uint64_t) {}); }).find("has no hash for offset 0"),
            std::string::npos);
}

// It would show NaN for the numbers of data files that are missing.
TEST_F(CheckpointFaults, ALoneViewOfTheModelIsRefused) {
  const std::string path = checkpoint + "/model.h5";
  EXPECT_EQ(read_model_info(path).step, 7);
  load_model(path, run.run.parameters);
  run.world.barrier();
  change([&] { fs::remove(checkpoint + "/COMMIT"); });
  EXPECT_NE(message_of<DataError>([&] { read_model_info(path); }).find("COMMIT: missing"), std::string::npos);
  EXPECT_NE(message_of<DataError>([&] { load_model(path, run.run.parameters); }).find("COMMIT: missing"),
            std::string::npos);
  run.world.barrier();
  change([&] { fs::remove(checkpoint + "/MANIFEST.json"); });
  EXPECT_NE(message_of<DataError>([&] { read_model_info(path); }).find("only a view"), std::string::npos);
  EXPECT_NE(message_of<DataError>([&] { load_model(path, run.run.parameters); }).find("only a view"),
            std::string::npos);
}

}  // namespace
}  // namespace atl
