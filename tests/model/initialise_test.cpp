/// Initial values: a function of seed, name and index alone. SPDX-License-Identifier: Apache-2.0
#include "model/initialise.hpp"

#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

TinyOptions seeded(std::uint64_t seed) {
  TinyOptions options;
  options.seed = seed;
  return options;
}

template <class T>
FullUnits<T> initial(MPI_Comm comm, Head head, Strategy strategy, std::uint64_t seed = 1) {
  return TinyRun<T>(comm, tiny_config(head), grid_of(strategy), seeded(seed)).masters();
}

TEST(Initialise, NoGridChangesABit) {
  for (const Head head : {Head::tied, Head::own})
    for (const Strategy strategy : {Strategy::fsdp, Strategy::ddp}) {
      EXPECT_TRUE(same_bits(initial<float>(MPI_COMM_WORLD, head, strategy),
                            initial<float>(MPI_COMM_SELF, head, Strategy::fsdp)));
      EXPECT_TRUE(same_bits(initial<bf16>(MPI_COMM_WORLD, head, strategy),
                            initial<float>(MPI_COMM_SELF, head, Strategy::fsdp)));
      EXPECT_TRUE(same_bits(initial<double>(MPI_COMM_WORLD, head, strategy),
                            initial<double>(MPI_COMM_SELF, head, Strategy::fsdp)));
    }
}

TEST(Initialise, LeavesThePaddingZero) {
  TinyRun<float> run(MPI_COMM_WORLD, tiny_config(Head::own), grid_of(Strategy::fsdp));
  for (std::size_t u = 0; u < run.parameters.number_of_units(); ++u) {
    const auto& unit = run.parameters.unit(u);
    const std::vector<float> mine = to_host(unit.master);
    for (std::size_t i = unit.owned.size(); i < mine.size(); ++i) EXPECT_EQ(mine[i], 0.0f);
  }
}

// The same seed must mean the same model in years to come. Computed by another program from the formulas of
// core/random.hpp, times the standard deviation of 0.1.
TEST(Initialise, FirstValuesArePinned) {
  const FullUnits<double> units = initial<double>(MPI_COMM_SELF, Head::own, Strategy::fsdp, 42);
  const std::vector<double> embedding{0.074005362178286238, 0.046442222854910925, -0.092795525071211929};
  const std::vector<double> key{0.18242454508488634, 0.066425831669109231, 0.068438138677267987};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(units[embedding_unit()][i], embedding[i], 1e-15);
    EXPECT_NEAR(units[block_unit(1)][12 * 17 + i], key[i], 1e-15);  // after the query's matrix
  }
}

TEST(Initialise, MatricesAreNormalAndNormsAreOne) {
  const LlamaConfig config = tiny_config(Head::own);
  const FullUnits<double> units = initial<double>(MPI_COMM_SELF, Head::own, Strategy::fsdp);
  const std::vector<UnitSpec> specs = llama_units(config);
  double sum = 0, squares = 0, cubes = 0, inside = 0, n = 0;
  for (std::size_t u = 0; u < specs.size(); ++u) {
    const ShardLayout layout(specs[u], 1);
    for (std::size_t t = 0; t < specs[u].tensors.size(); ++t)
      for (std::size_t i = layout.tensor(t).begin; i < layout.tensor(t).end; ++i) {
        const double value = units[u][i] / config.initializer_range;
        if (specs[u].tensors[t].shape.size() == 1) {
          EXPECT_EQ(units[u][i], 1.0);
          continue;
        }
        sum += value, squares += value * value, cubes += value * value * value, ++n;
        inside += std::abs(value) < 1 ? 1 : 0;
      }
  }
  // Five standard errors of each estimate.
  EXPECT_GT(n, 12000);
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(cubes / n, 0, 5 * std::sqrt(15 / n));
  EXPECT_NEAR(inside / n, 0.682689492, 5 * std::sqrt(0.2166 / n));
}

TEST(Initialise, SeedsAndTensorsDiffer) {
  const FullUnits<double> one = initial<double>(MPI_COMM_SELF, Head::own, Strategy::fsdp, 1);
  const FullUnits<double> two = initial<double>(MPI_COMM_SELF, Head::own, Strategy::fsdp, 2);
  const std::size_t head = head_unit(tiny_config(Head::own));
  std::size_t same_seed = 0, same_tensor = 0, same_layer = 0;
  for (std::size_t i = 0; i < 257 * 17; ++i) {
    same_seed += one[0][i] == two[0][i];
    same_tensor += one[0][i] == one[head][i];
    if (i < 12 * 17) same_layer += one[1][i] == one[2][i];
  }
  EXPECT_EQ(same_seed, 0u);
  EXPECT_EQ(same_tensor, 0u);
  EXPECT_EQ(same_layer, 0u);
}

}  // namespace
}  // namespace atl
