/// Data that all ranks open together. SPDX-License-Identifier: Apache-2.0
#include "io/data/data_sets.hpp"

#include "io/data/token_file.hpp"
#include "io/data/token_formats.hpp"
#include "parallel/communicator.hpp"
#include "tests/io/scratch_folder.hpp"

#include <gtest/gtest.h>

#include <optional>

namespace atl {
namespace {

/// Rank 0 writes files into a folder of its own, whose path all ranks know.
class OpenSource : public ::testing::Test {
 protected:
  OpenSource() : world_(MPI_COMM_WORLD) {
    if (world_.rank() == 0) folder_.emplace();
    path_ = world_.broadcast(folder_ ? *folder_ / "x.h5" : "");
  }
  ~OpenSource() override { world_.barrier(); }

  /// 5 blocks of 1048576 tokens, of which one is the largest.
  void write(std::int32_t largest, std::int64_t position) {
    if (world_.rank() == 0) {
      std::vector<std::int32_t> tokens(5000000);
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i % 1000);
      tokens[static_cast<std::size_t>(position)] = largest;
      TokenFileWriter writer(path_, 100000, "bytes");
      writer.append(tokens);
      writer.end_document(1, 0);
      writer.finish();
    }
    world_.barrier();
  }
  std::string fault(std::int64_t vocab_size) const {
    return message_of<CollectiveError>([&] { open_source(path_, RunConfig{}, vocab_size, true, world_); });
  }

  Communicator world_;
  std::optional<ScratchFolder> folder_;
  std::string path_;
};

TEST_F(OpenSource, FindsTheLargestTokenWhereverItIs) {
  for (const std::int64_t position : {0, 1500000, 4999999}) {
    write(70000, position);
    EXPECT_EQ(open_source(path_, RunConfig{}, 70001, true, world_)->tokens(), 5000000);
    EXPECT_NE(fault(70000).find("token 70000 at position " + std::to_string(position)), std::string::npos)
        << fault(70000);
  }
}

TEST_F(OpenSource, EveryRankIsToldOfABlockThatChanged) {
  write(1000, 7);
  const std::uint32_t block[] = {0, 1, 2, 3, 4, 5, 6, 1000};
  if (world_.rank() == 0) {
    std::string bytes = content_of(path_);
    const auto begin = bytes.find(std::string(reinterpret_cast<const char*>(block), sizeof block));
    ASSERT_NE(begin, std::string::npos);
    bytes[begin + 3 * 4194304 + 5] ^= 1;
    folder_->write("x.h5", bytes);
  }
  world_.barrier();
  EXPECT_NE(fault(100000).find("checksum of 'tokens'"), std::string::npos) << fault(100000);
}

// All formats, by all ranks together: the token is found, and named with its file.
TEST_F(OpenSource, EveryFormatIsCheckedAgainstTheVocabulary) {
  const std::string fixtures = ATOLL_SOURCE_DIR "/tests/fixtures/tokens/";
  for (const std::string file : {"nanogpt.bin", "llm_c_gpt2.bin", "llm_c_llama3.bin", "v1_uint16.npy", "v2_uint32.npy",
                                 "v3_int64.npy", "megatron_uint16", "megatron_int32.bin", "megatron_*.bin"}) {
    const auto source = open_source(fixtures + file, RunConfig{}, 128256, true, world_);
    EXPECT_EQ(source->tokens(), file == "megatron_*.bin" ? 1200 : 600);
    const LargestToken largest = source->scan_all();
    path_ = fixtures + file;
    EXPECT_EQ(fault(largest.id + 1), "");
    const std::string message = fault(largest.id);
    EXPECT_NE(message.find("token " + std::to_string(largest.id) + " at position"), std::string::npos) << message;
  }
  path_ = fixtures + "nothing_*.bin";
  EXPECT_NE(fault(9).find("no file matches this pattern"), std::string::npos) << fault(9);
}

TEST_F(OpenSource, MixturesAreOpenedInOrder) {
  const std::string fixtures = ATOLL_SOURCE_DIR "/tests/fixtures/tokens/";
  RunConfig config;
  config.data.train = {fixtures + "megatron_*.bin", fixtures + "nanogpt.bin"};
  config.data.weights = {1, 3};
  config.data.eval = fixtures + "v1_uint16.npy";
  const DataSets sets = open_data_sets(config, 128256, world_);
  ASSERT_EQ(sets.train.sources.size(), 2u);
  EXPECT_EQ(sets.train.sources[0]->tokens(), 1200);
  EXPECT_EQ(sets.train.sources[1]->tokens(), 600);
  EXPECT_EQ(sets.train.weights, config.data.weights);
  // Every file was checked with its own sums.
  EXPECT_EQ(sets.train.sources[0]->fingerprint(),
            join("", {open_tokens(fixtures + "megatron_int32", {}), open_tokens(fixtures + "megatron_uint16", {})})
                ->fingerprint());
  EXPECT_EQ(sets.eval->tokens(), 600);
}

TEST_F(OpenSource, SyntheticLanguageIsCheckedToo) {
  const std::string message =
      message_of<CollectiveError>([&] { open_source("synthetic", RunConfig{}, 5, true, world_); });
  EXPECT_NE(message.find("outside the model's vocabulary of 5"), std::string::npos) << message;
}

}  // namespace
}  // namespace atl
