/// Names, shapes and order of the parameters, and where they lie in their units. SPDX-License-Identifier: Apache-2.0
#include "model/parameters.hpp"

#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

using Shape = std::vector<std::size_t>;

struct Expected {
  std::string name;
  Shape shape;
  bool decay;
};

void expect_tensors(const UnitSpec& unit, const std::vector<Expected>& expected) {
  ASSERT_EQ(unit.tensors.size(), expected.size()) << unit.name;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(unit.tensors[i].name, expected[i].name);
    EXPECT_EQ(unit.tensors[i].shape, expected[i].shape) << expected[i].name;
    EXPECT_EQ(unit.tensors[i].decay, expected[i].decay) << expected[i].name;
  }
}

/// C = 17, F = 21, V = 257, H = 3, D = 4; K = 1 with a tied head.
TEST(Parameters, HaveHuggingFaceNamesAndShapes) {
  for (const Head head : {Head::tied, Head::own}) {
    const std::size_t kv = head == Head::tied ? 4 : 12;
    const LlamaConfig config = tiny_config(head);
    const std::vector<UnitSpec> units = llama_units(config);
    ASSERT_EQ(units.size(), head == Head::tied ? 3u : 4u);
    for (std::size_t layer = 0; layer < 2; ++layer) {
      const std::string p = "model.layers." + std::to_string(layer) + ".";
      expect_tensors(units[block_unit(static_cast<std::int64_t>(layer))],
                     {{p + "self_attn.q_proj.weight", {12, 17}, true},
                      {p + "self_attn.k_proj.weight", {kv, 17}, true},
                      {p + "self_attn.v_proj.weight", {kv, 17}, true},
                      {p + "self_attn.o_proj.weight", {17, 12}, true},
                      {p + "mlp.gate_proj.weight", {21, 17}, true},
                      {p + "mlp.up_proj.weight", {21, 17}, true},
                      {p + "mlp.down_proj.weight", {17, 21}, true},
                      {p + "input_layernorm.weight", {17}, false},
                      {p + "post_attention_layernorm.weight", {17}, false}});
    }
    const Expected table{"model.embed_tokens.weight", {257, 17}, true}, norm{"model.norm.weight", {17}, false};
    if (head == Head::tied) {
      EXPECT_EQ(head_unit(config), embedding_unit());
      expect_tensors(units[embedding_unit()], {table, norm});
    } else {
      EXPECT_EQ(head_unit(config), 3u);
      expect_tensors(units[embedding_unit()], {table});
      expect_tensors(units[head_unit(config)], {{"lm_head.weight", {257, 17}, true}, norm});
    }
  }
}

// What is full at the same time must not share a buffer: in backward, a block beside the embedding's or head's
// gradient.
TEST(Parameters, BlocksDoNotShareTheVocabularysBuffer) {
  const LlamaConfig config = tiny_config(Head::own);
  const std::vector<UnitSpec> units = llama_units(config);
  EXPECT_EQ(units[block_unit(0)].buffer, units[block_unit(1)].buffer);
  EXPECT_NE(units[block_unit(0)].buffer, units[embedding_unit()].buffer);
  EXPECT_NE(units[block_unit(0)].buffer, units[head_unit(config)].buffer);
}

TEST(Parameters, CountIsThatOfTheConfiguration) {
  for (const std::string_view name : llama_preset_names()) {
    LlamaConfig config = llama_preset(name);
    complete_and_check(config);
    for (const bool tied : {false, true}) {
      config.tie_word_embeddings = tied;
      std::int64_t count = 0;
      for (const UnitSpec& unit : llama_units(config))
        for (const TensorSpec& tensor : unit.tensors) count += static_cast<std::int64_t>(tensor.size());
      EXPECT_EQ(count, parameter_count(config)) << name;
    }
  }
  LlamaConfig published = llama_preset("8b");
  complete_and_check(published);
  std::int64_t count = 0;
  for (const UnitSpec& unit : llama_units(published)) count += static_cast<std::int64_t>(ShardLayout(unit, 1).size());
  EXPECT_EQ(count, 8030261248);
}

template <class View>
void expect_at(const View& view, const double* unit, Range range) {
  EXPECT_EQ(view.data() - unit, static_cast<std::ptrdiff_t>(range.begin));
  EXPECT_EQ(view.size(), range.size());
}

// The views of a gathered unit, the fused ones too, lie where the layout puts the tensors.
TEST(Parameters, ViewsLieWhereTheLayoutSays) {
  for (const Head head : {Head::tied, Head::own}) {
    const LlamaConfig config = tiny_config(head);
    const std::vector<UnitSpec> units = llama_units(config);
    const ShardLayout block(units[block_unit(1)], 4), last(units[head_unit(config)], 4);
    const auto range = [&](std::size_t first, std::size_t end) {
      return Range{block.tensor(first).begin, block.tensor(end).end};
    };
    const View1<double> unit = allocate<double>("atoll::test_unit", block.padded_size());
    const BlockTensors<double> tensors = block_tensors(config, unit);
    expect_at(tensors.qkv, unit.data(), range(0, 2));
    EXPECT_EQ(tensors.qkv.extent(1), 17u);
    expect_at(tensors.o, unit.data(), range(3, 3));
    EXPECT_EQ(tensors.o.extent(1), 12u);
    expect_at(tensors.gate_up, unit.data(), range(4, 5));
    EXPECT_EQ(tensors.gate_up.extent(1), 17u);
    expect_at(tensors.down, unit.data(), range(6, 6));
    EXPECT_EQ(tensors.down.extent(1), 21u);
    expect_at(tensors.attention_norm, unit.data(), range(7, 7));
    expect_at(tensors.mlp_norm, unit.data(), range(8, 8));

    const View1<double> whole = allocate<double>("atoll::test_unit", last.padded_size());
    const HeadTensors<double> views = head_tensors(config, whole);
    expect_at(views.weight, whole.data(), last.tensor(0));
    expect_at(views.norm, whole.data(), last.tensor(1));
  }
}

}  // namespace
}  // namespace atl
