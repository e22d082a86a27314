/// `atoll import` and `atoll export`, and models in safetensors as they are. SPDX-License-Identifier: Apache-2.0
#include "tests/apps/program.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

namespace atl {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

const std::string fixtures = ATOLL_SOURCE_DIR "/tests/fixtures/huggingface/";
const std::map<std::string, std::string> families = {{"llama1", "fp16"},  {"llama2", "fp16"},    {"llama3", "bf16"},
                                                     {"llama31", "bf16"}, {"llama32", "bf16"},   {"linear", "fp32"},
                                                     {"linear5", "fp32"}, {"tinyllama", "fp32"}, {"smollm", "bf16"},
                                                     {"mistral", "bf16"}, {"nemo", "bf16"},      {"head_dim", "fp32"}};

/// The tensors of a folder's safetensors files: dtype, shape and bytes by name.
std::map<std::string, std::string> tensors_of(const std::string& folder) {
  std::map<std::string, std::string> tensors;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".safetensors") continue;
    const std::string bytes = content_of(entry.path().string());
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    EXPECT_EQ(length % 8, 0u);
    const Json header = Json::parse(bytes.substr(8, length));
    for (const auto& [name, tensor] : header.items()) {
      if (name == "__metadata__") continue;
      const auto begin = tensor["data_offsets"][0].get<std::size_t>(),
                 end = tensor["data_offsets"][1].get<std::size_t>();
      tensors[name] = tensor["dtype"].dump() + tensor["shape"].dump() + bytes.substr(8 + length + begin, end - begin);
    }
  }
  return tensors;
}

class HuggingFace : public testing::Test {
 protected:
  Outcome succeed(const std::vector<std::string>& arguments, int ranks = 0) {
    Outcome outcome = run_program(folder_, ranks, arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  void fail(const std::vector<std::string>& arguments, int code, const std::string& part) {
    const Outcome outcome = run_program(folder_, 0, arguments);
    EXPECT_EQ(outcome.code, code);
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }
  /// A trained tiny run of two groups of two shards, with a checkpoint of its last step.
  std::string trained() {
    const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", two_groups));
    succeed({"train", config, "--set", "checkpoint.every=10"}, 4);
    return folder_ / "run";
  }
  ScratchFolder folder_;
};

TEST_F(HuggingFace, ImportedAndExportedAreTheSameBytes) {
  for (const auto& [family, type] : families) {
    SCOPED_TRACE(family);
    auto expected = tensors_of(fixtures + family);
    if (family == "smollm") expected.erase("lm_head.weight");  // the embedding once more
    for (int layer = 0; layer < 2; ++layer)
      expected.erase("model.layers." + std::to_string(layer) + ".self_attn.rotary_emb.inv_freq");
    succeed({"import", fixtures + family, folder_ / family});
    succeed({"export", folder_ / family, folder_ / family + "-out", "--dtype", type, "--max-shard-size", "6KB"});
    EXPECT_TRUE(tensors_of(folder_ / family + "-out") == expected);
    EXPECT_TRUE(fs::exists(folder_ / family + "-out/model.safetensors.index.json"));
    succeed(
        {"export", folder_ / family + "-out", folder_ / family + "-again", "--dtype", type});  // from many files to one
    EXPECT_TRUE(tensors_of(folder_ / family + "-again") == expected);
    EXPECT_TRUE(fs::exists(folder_ / family + "-again/model.safetensors"));
  }
}

TEST_F(HuggingFace, TransformersLoadsWhatIsExported) {
  const char* given = std::getenv("ATOLL_PYTHON");
  const std::string python = given != nullptr ? given : "python3",
                    script = ATOLL_SOURCE_DIR "/tests/apps/load_in_transformers.py";
  // One start of Python, which takes seconds.
  std::vector<std::string> arguments{script};
  for (const auto& [family, type] : families) {
    succeed({"export", fixtures + family, folder_ / family, "--max-shard-size", "20KB"});
    arguments.insert(arguments.end(), {folder_ / family, fixtures + family + "/expected.h5"});
  }
  const Outcome loaded = run_command(folder_, python, 0, arguments, {}, 300);  // the first start reads gigabytes
  if (loaded.code == 77 || loaded.code == 127) GTEST_SKIP() << "transformers is not there: " << loaded.err;
  ASSERT_EQ(loaded.code, 0) << loaded.err;
  const Json all = loaded.json();
  for (const auto& [family, type] : families) {
    SCOPED_TRACE(family);
    const Json& found = all.at(folder_ / family);
    std::printf("%-10s transformers, fp32: largest difference %.2e\n", family.c_str(),
                found["difference"].get<double>());
    EXPECT_LT(found["difference"], 2e-5);  // 7e-6 seen
    EXPECT_EQ(found["type"], "llama");
    EXPECT_EQ(found["bos"], 1);
    EXPECT_EQ(found["generation_bos"], 1);
    for (const char* key : {"missing_keys", "unexpected_keys", "mismatched_keys"})
      EXPECT_EQ(found[key], Json::array()) << key;
  }
}

TEST_F(HuggingFace, CheckpointsOfAnyGridAreExported) {
  const std::string run = trained(), checkpoint = run + "/checkpoints/step_000010";
  succeed({"export", run + "/model.h5", folder_ / "a"});
  succeed({"export", checkpoint, folder_ / "b", "--max-shard-size", "1kB"});
  succeed({"export", run, folder_ / "c", "--format", "safetensors"}, 2);  // one of the two works
  const auto tensors = tensors_of(folder_ / "a");
  EXPECT_EQ(tensors.size(), 21u);
  EXPECT_TRUE(tensors_of(folder_ / "b") == tensors);
  EXPECT_TRUE(tensors_of(folder_ / "c") == tensors);

  // What is evaluated does not depend on the format; other numbers would be found in a flipped byte.
  const auto evaluate = [&](const std::string& model) {
    return succeed({"eval", model, "--json", "--data", "synthetic"}).json()["loss"].get<double>();
  };
  const double loss = evaluate(run);
  succeed({"import", folder_ / "b", folder_ / "imported"});
  EXPECT_EQ(evaluate(checkpoint), loss);
  const std::string data = checkpoint + "/data/w00000.h5";
  std::string bytes = content_of(data);
  for (std::size_t i = 4000; i < bytes.size(); i += 500) bytes[i] = static_cast<char>(bytes[i] ^ 1);
  std::ofstream(data, std::ios::binary) << bytes;
  fail({"export", checkpoint, folder_ / "d"}, 3, "corrupt");
  EXPECT_FALSE(fs::exists(folder_ / "d"));
}

TEST_F(HuggingFace, TrainingStartsFromSafetensors) {
  const std::string run = trained();
  succeed({"export", run, folder_ / "exported"});
  const auto start = [&](const std::string& model, const std::string& dir) {
    succeed({"train", folder_ / "run.toml", "--init-from", model, "--set", "run.dir=" + folder_ / dir, "--set",
             "train.steps=2"},
            2);
    return tensors_of([&] {
      succeed({"export", folder_ / dir, folder_ / dir + "-out"});
      return folder_ / dir + "-out";
    }());
  };
  EXPECT_TRUE(start(folder_ / "exported", "second") == start(run + "/model.h5", "third"));
  EXPECT_EQ(succeed({"inspect", folder_ / "exported", "--json"}).json()["parameters"],
            succeed({"inspect", run, "--json"}).json()["parameters"]);
}

TEST_F(HuggingFace, TokenizerFilesGoWithTheModel) {
  fs::copy(fixtures + "llama3", folder_ / "model");
  folder_.write("model/tokenizer.json", "{}");
  folder_.write("model/generation_config.json", "{\"temperature\": 0.6}");
  folder_.write("model/README.md", "no part of the model");
  succeed({"import", folder_ / "model", folder_ / "in"});
  succeed({"export", folder_ / "in", folder_ / "exported"});
  for (const char* name : {"tokenizer.json", "generation_config.json"})
    EXPECT_EQ(content_of(folder_ / "exported/" + name), content_of(folder_ / "model/" + name));
  EXPECT_FALSE(fs::exists(folder_ / "exported/README.md"));
  const Json config = Json::parse(content_of(folder_ / "exported/config.json"));
  EXPECT_EQ(config["bos_token_id"], 1);
  EXPECT_EQ(config["torch_dtype"], "float32");
  // Of a run the ids are not known: null, and not transformers' defaults.
  succeed({"export", trained(), folder_ / "plain"});
  EXPECT_TRUE(Json::parse(content_of(folder_ / "plain/config.json"))["bos_token_id"].is_null());
  succeed({"export", folder_ / "run", folder_ / "with", "--tokenizer", folder_ / "in"});
  EXPECT_EQ(content_of(folder_ / "with/tokenizer.json"), "{}");
  // Unless the tokenizer tells them: its <|begin_of_text|> and <|end_of_text|>.
  fs::create_directory(folder_ / "llama3");
  fs::copy_file(ATOLL_SOURCE_DIR "/tests/fixtures/tokenizers/llama3.json", folder_ / "llama3/tokenizer.json");
  succeed({"export", folder_ / "run", folder_ / "told", "--tokenizer", folder_ / "llama3"});
  for (const char* name : {"/told/config.json", "/told/generation_config.json"}) {
    const Json told = Json::parse(content_of(folder_ / name));
    EXPECT_EQ(told["bos_token_id"], 900);
    EXPECT_EQ(told["eos_token_id"], 901);
    EXPECT_TRUE(told["pad_token_id"].is_null());
  }
  fail({"export", folder_ / "run", folder_ / "x", "--tokenizer", folder_ / "plain"}, 3, "no folder with a tokenizer");
}

TEST_F(HuggingFace, TheTokenizerOfTheDataGoesWithTheModel) {
  for (int i = 0; i < 9; ++i) folder_.write("text/" + std::to_string(i), "low lower lowest, and lower again\n");
  succeed({"tokenize", folder_ / "text", "--train-vocab", "270", "--output", folder_ / "tokens"});
  const std::string config = folder_.write("run.toml", tiny_run(folder_ / "run", ""));
  succeed({"train", config, "--set", "model.vocab_size=270", "--set", "data.train=" + folder_ / "tokens/train.h5",
           "--set", "data.eval=" + folder_ / "tokens/eval.h5", "--set", "data.sequence_length=4"});
  const auto exported = [&](const std::string& name, const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments{"export", folder_ / "run", folder_ / name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    succeed(arguments);
    return Json::parse(content_of(folder_ / name + "/config.json"));
  };
  const Json found = exported("found");
  EXPECT_EQ(content_of(folder_ / "found/tokenizer.json"), content_of(folder_ / "tokens/tokenizer.json"));
  EXPECT_TRUE(fs::exists(folder_ / "found/tokenizer_config.json"));
  EXPECT_EQ(found["bos_token_id"], 0);
  EXPECT_EQ(found["eos_token_id"], 1);
  EXPECT_TRUE(found["pad_token_id"].is_null());
  EXPECT_EQ(Json::parse(content_of(folder_ / "found/generation_config.json"))["eos_token_id"], 1);
  // Names as transformers writes them too; a name that the tokenizer has not says nothing.
  folder_.write("tokens/tokenizer_config.json",
                R"({"bos_token": {"content": "<|end_of_text|>"}, "eos_token": "<|no|>", "pad_token": 3})");
  const Json objects = exported("objects");
  EXPECT_EQ(objects["bos_token_id"], 1);
  EXPECT_TRUE(objects["eos_token_id"].is_null());
  EXPECT_TRUE(objects["pad_token_id"].is_null());
  folder_.write("tokens/tokenizer_config.json", "[1");
  EXPECT_EQ(exported("broken")["bos_token_id"], 0) << "of tokenizer.json";
  folder_.write("tokens/tokenizer.json", content_of(ATOLL_SOURCE_DIR "/tests/fixtures/tokenizers/llama3.json"));
  fail({"export", folder_ / "run", folder_ / "other"}, 3, "is not the tokenizer that");
}

TEST_F(HuggingFace, AModelMayBeLargerThanTheMemory) {
  // RLIMIT_DATA: all that a process may write to, in KiB. The model has 164 MB, nearly all of it in one tensor.
  constexpr int limit = 96 << 10;
  constexpr std::uint64_t vocab = 160000, width = 256;
  const auto limited = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> all{"-c", "ulimit -d " + std::to_string(limit) + "; exec \"$@\"", "sh", ATOLL_PROGRAM};
    all.insert(all.end(), arguments.begin(), arguments.end());
    return run_command(folder_, "sh", 0, all, {"OPENBLAS_NUM_THREADS=1"});  // its threads alone take 100 MB and more
  };
  if (limited({"import", fixtures + "llama3", folder_ / "small"}).code != 0)
    GTEST_SKIP() << "this build of the program needs more memory by itself";
  Json config = Json::parse(content_of(fixtures + "llama3/config.json"));
  config.update({{"vocab_size", vocab}, {"hidden_size", width}, {"intermediate_size", 8}, {"num_hidden_layers", 1}});
  config.update(
      {{"num_attention_heads", 1}, {"num_key_value_heads", 1}, {"head_dim", 2}, {"tie_word_embeddings", true}});
  folder_.write("large/config.json", config.dump());
  Json header = Json::object();
  std::uint64_t bytes = 0;
  const auto add = [&](const std::string& name, const std::vector<std::uint64_t>& shape) {
    std::uint64_t size = 4;
    for (const std::uint64_t extent : shape) size *= extent;
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {bytes, bytes + size}}};
    bytes += size;
  };
  add("model.embed_tokens.weight", {vocab, width});
  const std::uint64_t end_of_embedding = bytes;
  const std::string block = "model.layers.0.";
  for (const char* name : {"input_layernorm", "post_attention_layernorm"}) add(block + name + ".weight", {width});
  for (const char* name : {"q_proj", "k_proj", "v_proj"}) add(block + "self_attn." + name + ".weight", {2, width});
  add(block + "self_attn.o_proj.weight", {width, 2});
  for (const char* name : {"gate_proj", "up_proj"}) add(block + "mlp." + name + ".weight", {8, width});
  add(block + "mlp.down_proj.weight", {width, 8});
  add("model.norm.weight", {width});
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const std::uint64_t length = text.size();
  const std::string path = folder_.write("large/model.safetensors", "");
  {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length) << text;
  }
  fs::resize_file(path, 8 + length + bytes);  // zeros, without space on the disk
  const float mark = 0.015625F;
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(8 + length + end_of_embedding - 4));
    file.write(reinterpret_cast<const char*>(&mark), sizeof mark);
  }
  ASSERT_GT(bytes, std::uint64_t{limit} << 10);

  const Outcome imported = limited({"import", folder_ / "large", folder_ / "in"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  const Outcome exported = limited({"export", folder_ / "in", folder_ / "exported"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  std::ifstream file(folder_ / "exported/model.safetensors", std::ios::binary);
  std::uint64_t found_length = 0;
  file.read(reinterpret_cast<char*>(&found_length), sizeof found_length);
  std::string found(found_length, ' ');
  file.read(found.data(), static_cast<std::streamsize>(found_length));
  const std::uint64_t end = Json::parse(found)["model.embed_tokens.weight"]["data_offsets"][1];
  file.seekg(static_cast<std::streamoff>(8 + found_length + end - 8));
  float last[2] = {-1, -1};
  file.read(reinterpret_cast<char*>(last), sizeof last);
  EXPECT_EQ(last[0], 0.0F);
  EXPECT_EQ(last[1], mark);
  EXPECT_EQ(fs::file_size(folder_ / "exported/model.safetensors"), 8 + found_length + bytes);
}

TEST_F(HuggingFace, TellsWhatIsWrong) {
  fail({"import", folder_ / "nothing", folder_ / "exported"}, 3, "neither a .safetensors file");
  fail({"export", folder_ / "nothing", folder_ / "exported"}, 3, "no such file or folder");
  folder_.write("full/file", "x");
  fail({"import", fixtures + "llama3", folder_ / "full"}, 3, "is there already");
  fail({"export", fixtures + "llama3", folder_ / "full"}, 3, "is there already");
  fail({"export", fixtures + "llama3", folder_ / "exported", "--dtype", "int8"}, 2, "--dtype");
  fail({"export", fixtures + "llama3", folder_ / "exported", "--max-shard-size", "0"}, 2, "--max-shard-size");
  fail({"export", fixtures + "llama3", folder_ / "exported", "--max-shard-size", "-5GB"}, 2,
       "--max-shard-size: -5GB is not a size above 0");
  fail({"eval", folder_ / "full"}, 3, "holds no model");
  fs::copy(fixtures + "llama3", folder_ / "nan");
  std::string weights = content_of(folder_ / "nan/model.safetensors");
  for (std::size_t i = weights.size() - 8000; i < weights.size(); i += 2) weights.replace(i, 2, "\xc0\x7f");
  folder_.write("nan/model.safetensors", weights);
  const std::string ids = folder_.write("ids.bin", std::string(200, '\0'));
  fail({"eval", folder_ / "nan", "--data", ids, "--raw-type", "uint16", "--sequence-length", "8"}, 3, "is nan");
  fs::copy(fixtures + "mistral", folder_ / "window");
  Json config = Json::parse(content_of(folder_ / "window/config.json"));
  config["sliding_window"] = 4096;
  folder_.write("window/config.json", config.dump());
  fail({"import", folder_ / "window", folder_ / "exported"}, 2, "sliding_window = 4096");
  EXPECT_FALSE(fs::exists(folder_ / "exported"));
  fs::create_directory(folder_ / "empty");
  succeed({"import", fixtures + "llama3", folder_ / "empty/"});
  EXPECT_TRUE(fs::exists(folder_ / "empty/model.h5"));
}

}  // namespace
}  // namespace atl
