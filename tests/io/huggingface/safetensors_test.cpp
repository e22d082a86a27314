/// Safetensors files that are not what they say, and numbers on their way through them. SPDX-License-Identifier:
/// Apache-2.0
#include "io/huggingface/safetensors.hpp"

#include "core/errors.hpp"
#include "io/huggingface/import.hpp"
#include "io/huggingface/safetensors_model.hpp"
#include "io/huggingface/weights.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <sys/stat.h>

namespace atl {
namespace {

using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

const std::string fixtures = ATOLL_SOURCE_DIR "/tests/fixtures/huggingface/";

/// Why a header of a file with `bytes` bytes after it is refused.
std::string refusal(const std::string& json, std::uint64_t bytes) {
  return message_of<DataError>([&] { parse_safetensors_header(json, bytes, "file"); });
}

void expect_refusal(const std::string& json, std::uint64_t bytes, const std::string& part) {
  const std::string message = refusal(json, bytes);
  EXPECT_NE(message.find(part), std::string::npos) << json << "\n" << (message.empty() ? "accepted" : message);
}

TEST(Safetensors, HeaderIsRead) {
  const auto header = parse_safetensors_header(
      R"({"__metadata__": {"format": "pt"}, "b": {"dtype": "F16", "shape": [2, 3], "data_offsets": [4, 16]},
          "a": {"shape": [], "data_offsets": [0, 4], "dtype": "F32"}, "none": {"dtype": "I64", "shape": [0, 7], "data_offsets": [16, 16]}}  )",
      16, "file");
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors.at("b").shape, (std::vector<std::uint64_t>{2, 3}));
  EXPECT_EQ(header.tensors.at("b").begin, 4u);
  EXPECT_EQ(header.tensors.at("b").end, 16u);
  EXPECT_EQ(header.tensors.at("b").dtype, "F16");
  EXPECT_EQ(header.metadata.at("format"), "pt");
}

TEST(Safetensors, HostileHeadersAreRefused) {
  const auto one = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"t": {"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + offsets + "}}";
  };
  EXPECT_EQ(refusal(one("F32", "[2, 2]", "[0, 16]"), 16), "");
  expect_refusal(one("F32", "[2, 2]", "[0, 16]"), 12, "outside of the 12 bytes");
  expect_refusal(one("F32", "[2, 2]", "[0, 16]"), 20, "4 bytes at its end belong to no tensor");
  expect_refusal(one("F32", "[2, 2]", "[4, 20]"), 20, "bytes 0 to 4 before the tensor \"t\" belong to no tensor");
  expect_refusal(one("F32", "[2, 2]", "[16, 0]"), 16, "outside of the 16 bytes");
  expect_refusal(one("F32", "[2, 3]", "[0, 16]"), 16, "has 16 bytes, which is not what shape (2, 3) of F32 takes");
  expect_refusal(one("F32", "[4294967296, 4294967296, 4]", "[0, 0]"), 0, "has 0 bytes");  // 2^66: wraps around
  expect_refusal(one("F32", "[4611686018427387905]", "[0, 4]"), 4, "has 4 bytes");
  expect_refusal(one("F4", "[8]", "[0, 4]"), 4, "unknown dtype \"F4\"");
  expect_refusal(one("F32", "[-1]", "[0, 4]"), 4, "negative number -1 as shape of \"t\"");
  expect_refusal(one("F32", "[1.5]", "[0, 4]"), 4, "no integer of 64 bits as shape");
  expect_refusal(one("F32", "[18446744073709551616]", "[0, 4]"), 4, "no integer of 64 bits as shape");
  expect_refusal(one("F32", "1", "[0, 4]"), 4, "a number as shape");
  expect_refusal(one("F32", "[[1]]", "[0, 4]"), 4, "an array as shape");
  expect_refusal(one("F32", "[1]", "[0, 4, 8]"), 4, "3 numbers in data_offsets");
  expect_refusal(one("F32", "[1]", "[]"), 4, "0 numbers in data_offsets");
  expect_refusal(one("F32", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "[0, 4]"), 4, "too many numbers");
  const std::string t = R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})";
  const std::string u = R"({"dtype": "F32", "shape": [1], "data_offsets": [2, 6]})";
  expect_refusal(R"({"t": )" + t + R"(, "t": )" + t + "}", 4, "has \"t\" twice");
  expect_refusal(R"({"t": )" + t + R"(, "u": )" + t + "}", 4, "\"t\" and \"u\" overlap");
  expect_refusal(R"({"t": )" + t + R"(, "u": )" + u + "}", 6, "\"t\" and \"u\" overlap");
  expect_refusal(R"({"t": {"dtype": "F32", "dtype": "F32", "shape": [1], "data_offsets": [0, 4]}})", 4,
                 "dtype of \"t\" twice");
  expect_refusal(R"({"t": {"dtype": "F32", "shape": [1]}})", 4, "no data_offsets of \"t\"");
  expect_refusal(R"({"t": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], "x": 1}})", 4, "unknown key \"x\"");
  expect_refusal(R"({"__metadata__": {"a": 1}, "t": )" + t + "}", 4, "a number as __metadata__.\"a\"");
  expect_refusal(R"({"__metadata__": {}, "__metadata__": {}, "t": )" + t + "}", 4, "twice");
  expect_refusal("[]", 0, "an array as the whole header");
  expect_refusal("", 0, "is not JSON");
  expect_refusal("{\"t\": ", 0, "is not JSON");
  expect_refusal("{} {}", 0, "is not JSON");
  expect_refusal("{\"t\xff\": 1}", 0, "is not JSON");
  expect_refusal("{\"t\": {\"dtype\": " + std::string(100000, '['), 0, "an array as dtype");
  expect_refusal(std::string(100000, '{'), 0, "is not JSON");
  // A message stays short and printable whatever the names are.
  EXPECT_LT(refusal(R"({")" + std::string(100000, 'n') + R"(": 1})", 0).size(), 300u);
  const std::string controls(1000, '\x7f');  // six characters each
  EXPECT_LT(refusal(R"({")" + controls + R"(": {")" + controls + R"(": 1}})", 0).size(), 1000u);
}

/// A copy of a fixture to spoil.
struct Spoiled {
  explicit Spoiled(const std::string& family = "llama3") {
    fs::copy(fixtures + family, folder / "model", fs::copy_options::recursive);
  }
  std::string file(const std::string& name = "model.safetensors") const { return folder / "model/" + name; }
  /// Changes the header of the file; the bytes that follow stay.
  void change(const std::function<void(Json& header, std::string& data)>& change) const {
    const std::string bytes = content_of(file());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    Json header = Json::parse(bytes.substr(8, length));
    std::string data = bytes.substr(8 + length);
    change(header, data);
    const std::string text = header.dump();
    length = text.size();
    folder.write("model/model.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + text + data);
  }
  void change_config(const char* key, const Json& value) const {
    Json config = Json::parse(content_of(file("config.json")));
    config[key] = value;
    folder.write("model/config.json", config.dump());
  }
  /// Importing it fails so, and leaves nothing.
  void expect(const std::string& part, const std::string& name = "") const {
    std::string message = "accepted";
    try {
      import_model(folder / "model" + name, folder / "out", [](auto, auto) {});
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(part), std::string::npos) << message;
    for (const auto& entry : fs::directory_iterator(folder.path())) EXPECT_EQ(entry.path().filename(), "model");
  }

  ScratchFolder folder;
};

TEST(SafetensorsModel, FilesThatAreNotWhole) {
  const auto with_length = [](std::uint64_t length) {
    const Spoiled model;
    std::string bytes = content_of(model.file());
    std::memcpy(bytes.data(), &length, sizeof length);
    model.folder.write("model/model.safetensors", bytes);
    model.expect("its header would take");
  };
  with_length(~std::uint64_t{0});
  with_length(std::uint64_t{1} << 40);
  with_length(fs::file_size(fixtures + "llama3/model.safetensors"));
  {
    const Spoiled model;
    fs::resize_file(model.file(), fs::file_size(model.file()) - 2);
    model.expect("cut off");
  }
  {
    const Spoiled model;
    fs::resize_file(model.file(), 5);
    model.expect("5 bytes only");
  }
  {
    const Spoiled model;
    fs::remove(model.file());
    ASSERT_EQ(::mkfifo(model.file().c_str(), 0600), 0);  // opening it would wait for ever
    model.expect("not a file");
  }
}

TEST(SafetensorsModel, TensorsThatAreNotTheModels) {
  const std::string name = "model.layers.1.mlp.up_proj.weight";
  {
    const Spoiled model;
    model.change(
        [&](Json& header, std::string&) { header.erase("lm_head.weight"), header.erase("model.norm.weight"); });
    model.expect("belong to no tensor");
  }
  {
    const Spoiled model;
    model.change([&](Json& header, std::string&) {
      header["model.layers.1.mlp.upproj.weight"] = header[name];
      header.erase(name);
    });
    model.expect("tensors of the model in config.json are missing: " + name);
  }
  {
    const Spoiled model;
    model.change([&](Json& header, std::string& data) {
      header["model.layers.0.self_attn.q_proj.bias"] = {
          {"dtype", "BF16"}, {"shape", {24}}, {"data_offsets", {data.size(), data.size() + 48}}};
      data.append(48, '\0');
    });
    model.expect("has not, so it is other mathematics: model.layers.0.self_attn.q_proj.bias");
  }
  {
    const Spoiled model;
    model.change([&](Json& header, std::string&) { header[name]["dtype"] = "I16"; });
    model.expect(name + " is of dtype I16; only F32, BF16 and F16");
  }
  {
    const Spoiled model;
    model.change([&](Json& header, std::string&) { header[name]["shape"] = {24, 40}; });
    model.expect(name + " has shape (24, 40), but config.json says (40, 24)");
  }
  {
    const Spoiled model;
    model.change_config("tie_word_embeddings", true);
    model.expect("lm_head.weight differs from model.embed_tokens.weight");
  }
  {
    const Spoiled model("llama32");
    model.change_config("tie_word_embeddings", false);
    model.expect("lm_head.weight (config.json has tie_word_embeddings = false)");
  }
  {
    const Spoiled model("mistral");
    model.change_config("sliding_window", 4096);
    model.expect("sliding_window = 4096");
  }
  {
    const Spoiled model;
    fs::remove(model.file("config.json"));
    model.expect("config.json");
  }
}

TEST(SafetensorsModel, IndexThatIsWrong) {
  const auto spoil = [](const std::function<void(Json & index)>& change, const std::string& part) {
    const Spoiled model("llama2");
    Json index = Json::parse(content_of(model.file("model.safetensors.index.json")));
    change(index);
    model.folder.write("model/model.safetensors.index.json", index.dump());
    model.expect(part);
  };
  const std::string norm = "model.norm.weight";
  spoil([&](Json& index) { index["weight_map"][norm] = "model-00000-of-00004.safetensors"; },
        "model-00000-of-00004.safetensors: No such file");
  spoil([&](Json& index) { index["weight_map"][norm] = "../model/x.safetensors"; },
        "not the name of a .safetensors file beside it");
  spoil([&](Json& index) { index["weight_map"].erase(norm); }, "has the tensor " + norm);
  spoil([&](Json& index) { index["weight_map"]["other"] = index["weight_map"][norm]; }, "has no tensor other");
  spoil([&](Json& index) { index.erase("weight_map"); }, "no object weight_map");
  const Spoiled model("llama2");
  const std::string index = model.file("model.safetensors.index.json");
  const std::string text = content_of(index);
  model.folder.write("model/model.safetensors.index.json", "{\"metadata\": {}, " + text.substr(text.find('{') + 1));
  model.expect("the key \"metadata\" twice");
  model.folder.write("model/model.safetensors.index.json", text);
  model.folder.write("model/model.safetensors", "x");
  model.expect("has both model.safetensors and model.safetensors.index.json");
  const std::string output = model.folder / "out";
  EXPECT_EQ(import_model(index, output, [](auto, auto) {}).bytes_read, 2u * 11880);  // named, the index is meant
}

// Every number of 16 bits, to fp32 or fp64 and back; and fp32 numbers around every one of them.
template <class T>
void expect_exact(WeightType type) {
  std::vector<std::uint16_t> halves(65536), back(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  std::vector<T> wide(halves.size());
  widen(type, reinterpret_cast<const char*>(halves.data()), halves.size(), wide.data());
  const Rounded rounded = narrow(wide.data(), wide.size(), type, reinterpret_cast<char*>(back.data()));
  std::size_t different = 0, specials = 0;
  for (std::size_t i = 0; i < halves.size(); ++i) {
    const bool nan = std::isnan(wide[i]);
    // A conversion of the processor makes NaNs quiet: only those of fp32 keep every bit.
    different += (!nan || std::is_same_v<T, float>)&&halves[i] != back[i];
    specials += !std::isfinite(wide[i]);
  }
  EXPECT_EQ(different, 0u);
  EXPECT_EQ(rounded.not_finite, specials);
  EXPECT_EQ(rounded.too_large, nullptr);

  // Halfway between neighbours, and one step to either side: to even, and to the nearer one.
  const std::size_t positive = type == WeightType::fp16 ? 0x7bff : 0x7f7f;
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < positive; ++i) {
    const T middle = wide[i] + (wide[i + 1] - wide[i]) / 2;  // their sum could be too large
    const T points[] = {middle, std::nextafter(middle, T(0)), std::nextafter(middle, T(INFINITY))};
    const std::size_t expected[] = {i % 2 == 0 ? i : i + 1, i, i + 1};
    for (int p = 0; p < 3; ++p) {
      std::uint16_t half = 0;
      narrow(&points[p], 1, type, reinterpret_cast<char*>(&half));
      wrong += half != expected[p];
    }
  }
  EXPECT_EQ(wrong, 0u);
}

TEST(Weights, Fp16AndBf16RoundTripAndRoundOnce) {
  expect_exact<float>(WeightType::bf16);
  expect_exact<float>(WeightType::fp16);
  expect_exact<double>(WeightType::bf16);
  expect_exact<double>(WeightType::fp16);
}

TEST(Weights, KnownNumbers) {
  const std::uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x7bff, 0x3555};
  float values[5];
  widen(WeightType::fp16, reinterpret_cast<const char*>(halves), 5, values);
  const float expected[] = {1.0f, -2.0f, 0x1p-24f, 65504.0f, 0x1.554p-2f};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(values[i], expected[i]);
  // By way of fp32 this would become 1.0: its nearest fp32 lies halfway.
  const double between = 1.0 + 0x1p-8 + 0x1p-40;
  std::uint16_t half = 0;
  narrow(&between, 1, WeightType::bf16, reinterpret_cast<char*>(&half));
  EXPECT_EQ(half, 0x3f81);
}

TEST(Weights, NumbersThatAreTooLarge) {
  const float values[] = {1.0f, INFINITY, 65519.0f, 65520.0f};
  char bytes[8];
  EXPECT_EQ(narrow(values, 3, WeightType::fp16, bytes).too_large, nullptr);
  const Rounded rounded = narrow(values, 4, WeightType::fp16, bytes);
  EXPECT_EQ(rounded.too_large, values + 3);
  EXPECT_EQ(rounded.not_finite, 1u);
}

}  // namespace
}  // namespace atl
