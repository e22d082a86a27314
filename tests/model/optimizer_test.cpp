/// Norm, clipping and updates of the sharded optimizer. SPDX-License-Identifier: Apache-2.0
#include "model/optimizer.hpp"

#include "tests/model/tiny_run.hpp"

namespace atl {
namespace {

double gradient_at(std::size_t u, std::size_t i) { return 0.01 * random_normal(random_key(u, "gradient"), i); }

/// fsdp, ddp and hsdp: the norm counts every shard once, and no replica twice.
std::vector<ParallelOptions> grids() {
  std::vector<ParallelOptions> all{grid_of(Strategy::fsdp), grid_of(Strategy::ddp)};
  if (world_ranks() % 2 == 0) all.push_back(grid_of(Strategy::hsdp, world_ranks() / 2));
  return all;
}

/// L2 norm of a whole model on the host.
template <class R>
double norm_of(const std::vector<std::vector<R>>& units) {
  long double squares = 0;
  for (const auto& unit : units)
    for (const R value : unit) squares += static_cast<long double>(value) * static_cast<long double>(value);
  return static_cast<double>(std::sqrt(squares));
}

template <class R>
double distance(const std::vector<std::vector<R>>& a, const std::vector<std::vector<R>>& b) {
  std::vector<std::vector<R>> difference = a;
  for (std::size_t u = 0; u < a.size(); ++u)
    for (std::size_t i = 0; i < a[u].size(); ++i) difference[u][i] -= b[u][i];
  return norm_of(difference);
}

template <class T>
class OptimizerTest : public ::testing::Test {};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(OptimizerTest, Types);

TYPED_TEST(OptimizerTest, NormIsThatOfTheWholeModel) {
  using T = TypeParam;
  for (const Head head : {Head::tied, Head::own})
    for (const ParallelOptions& grid : grids()) {
      TinyRun<T> run(MPI_COMM_WORLD, tiny_config(head), grid, with_sgd(0.01));
      run.set(&ShardedUnit<T>::gradient, gradient_at);
      const double norm = run.optimizer.step(run.exec, 0.01);
      EXPECT_LE(relative_difference(norm, norm_of(run.gradients())), 1e-14) << run.grid.describe();
      for (const double value : run.communicators.world.all_gather({norm})) EXPECT_EQ(value, norm);
    }
}

TEST(Optimizer, ClippedUpdateHasExactlyTheLengthClipNorm) {
  constexpr double lr = 0.5, clip = 0.125;
  for (const ParallelOptions& grid : grids()) {
    TinyRun<double> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid, with_sgd(clip));
    SCOPED_TRACE(run.grid.describe());
    run.set(&ShardedUnit<double>::gradient, gradient_at);
    const FullUnits<double> before = run.masters();
    EXPECT_GT(run.optimizer.step(run.exec, lr), 4 * clip);
    EXPECT_LE(relative_difference(distance(run.masters(), before), lr * clip), 1e-13);
  }
}

TEST(Optimizer, ShortGradientsAreNotClipped) {
  constexpr double lr = 0.5;
  for (const double clip : {0.0, 1e3}) {
    TinyRun<double> run(MPI_COMM_WORLD, tiny_config(Head::tied), grid_of(Strategy::fsdp), with_sgd(clip));
    run.set(&ShardedUnit<double>::gradient, gradient_at);
    const FullUnits<double> before = run.masters();
    const double norm = run.optimizer.step(run.exec, lr);
    EXPECT_LE(relative_difference(distance(run.masters(), before), lr * norm), 1e-13);
  }
}

// AdamW by the formulas of its paper, on the host: the bias correction counts steps, moments stay with their elements,
// the clipped gradient is what enters them, and norms do not decay.
TEST(Optimizer, AdamwOnShardsIsAdamwOnTheWhole) {
  const LlamaConfig config = tiny_config(Head::own);
  TinyOptions options;
  options.optimizer.clip_norm = 0.125;
  const OptimizerOptions& o = options.optimizer;
  const double lr = 0.02;
  for (const ParallelOptions& grid : grids()) {
    TinyRun<double> run(MPI_COMM_WORLD, config, grid, options);
    FullUnits<double> p = run.masters(), m = p, v = p;
    for (auto* moments : {&m, &v})
      for (auto& unit : *moments) std::fill(unit.begin(), unit.end(), 0.0);
    for (int step = 1; step <= 3; ++step) {
      run.set(&ShardedUnit<double>::gradient,
              [&](std::size_t u, std::size_t i) { return gradient_at(u, i + static_cast<std::size_t>(step)); });
      const FullUnits<double> g = run.gradients();
      const double scale = o.clip_norm / run.optimizer.step(run.exec, lr);
      EXPECT_EQ(run.optimizer.steps(), step);
      for (std::size_t u = 0; u < p.size(); ++u) {
        const ShardLayout layout(llama_units(config)[u], 1);
        for (std::size_t t = 0; t < layout.unit().tensors.size(); ++t)
          for (std::size_t i = layout.tensor(t).begin; i < layout.tensor(t).end; ++i) {
            const double clipped = scale * g[u][i];
            m[u][i] = o.beta1 * m[u][i] + (1 - o.beta1) * clipped;
            v[u][i] = o.beta2 * v[u][i] + (1 - o.beta2) * clipped * clipped;
            const double mean = m[u][i] / (1 - std::pow(o.beta1, step)),
                         square = v[u][i] / (1 - std::pow(o.beta2, step));
            const double decay = layout.unit().tensors[t].shape.size() == 1 ? 0.0 : o.weight_decay;
            p[u][i] -= lr * decay * p[u][i] + lr * mean / (std::sqrt(square) + o.eps);
          }
      }
    }
    expect_close(config, run.masters(), p, 1e-13, "parameters");
    expect_close(config, run.full(&ShardedUnit<double>::moment1), m, 1e-13, "first moments");
    expect_close(config, run.full(&ShardedUnit<double>::moment2), v, 1e-13, "second moments");
  }
}

TEST(Optimizer, OnlyMatricesDecay) {
  const LlamaConfig config = tiny_config(Head::tied);
  TinyOptions options = with_sgd();
  options.optimizer.weight_decay = 0.5;
  TinyRun<double> run(MPI_COMM_WORLD, config, grid_of(Strategy::fsdp), options);
  const FullUnits<double> before = run.masters();
  run.set(&ShardedUnit<double>::gradient, [](std::size_t, std::size_t) { return 0.0; });
  run.optimizer.step(run.exec, 0.5);
  const FullUnits<double> after = run.masters();
  for (std::size_t u = 0; u < before.size(); ++u) {
    const ShardLayout layout(llama_units(config)[u], 1);
    for (std::size_t t = 0; t < layout.unit().tensors.size(); ++t) {
      const double factor = layout.unit().tensors[t].shape.size() == 1 ? 1.0 : 0.75;
      for (std::size_t i = layout.tensor(t).begin; i < layout.tensor(t).end; ++i)
        ASSERT_EQ(after[u][i], factor * before[u][i]) << layout.unit().tensors[t].name;
    }
  }
}

// One element that is not finite, on one rank: every rank of the replica throws, and nothing has changed.
TEST(Optimizer, RefusesAGradientThatIsNotFinite) {
  for (const double bad : {std::nan(""), HUGE_VAL}) {
    TinyRun<double> run(MPI_COMM_WORLD, tiny_config(Head::own), grid_of(Strategy::fsdp));
    const FullUnits<double> before = run.masters();
    run.set(&ShardedUnit<double>::gradient, [&](std::size_t u, std::size_t i) { return u == 1 && i == 5 ? bad : 0.0; });
    try {
      run.optimizer.step(run.exec, 0.1);
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("step 1 "), std::string::npos) << error.what();
    }
    EXPECT_TRUE(same_bits(run.masters(), before));
    EXPECT_EQ(run.optimizer.steps(), 0);
  }
}

}  // namespace
}  // namespace atl
