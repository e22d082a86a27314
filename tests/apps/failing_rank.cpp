/// A run of fl+hsdp in which rank 1 fails in the middle of a collective operation: for failing_test.cpp.
/// SPDX-License-Identifier: Apache-2.0
///
/// failing_rank gather | reduction | replica_sum | aggregation [N]: at the N-th of them.
#include "apps/parallel_command.hpp"
#include "model/initialise.hpp"
#include "model/training_step.hpp"
#include "parallel/federation.hpp"

#include <cstdlib>
#include <string>

namespace atl {
namespace {

/// Passes everything on, but for one call.
class Failing final : public Collectives {
 public:
  Failing(const Communicator& comm, int gathers, int sums) : inner_(make_mpi_collectives(comm)), left_{gathers, sums} {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  Ticket all_gather(const void* send, void* recv, std::size_t count, Element element, const Exec& exec) override {
    count_down(left_[0]);
    return inner_->all_gather(send, recv, count, element, exec);
  }
  Ticket reduce_scatter(const void* send, void* recv, std::size_t count, Element element, bool accumulate,
                        const Exec& exec, Wire wire) override {
    count_down(left_[1]);
    return inner_->reduce_scatter(send, recv, count, element, accumulate, exec, wire);
  }
  Ticket all_reduce(void* data, std::size_t count, Element element, const Exec& exec, Wire wire) override {
    count_down(left_[1]);
    return inner_->all_reduce(data, count, element, exec, wire);
  }

 private:
  static void count_down(int& left) {
    if (left > 0 && --left == 0) throw Error("the network card of this rank is gone");
  }
  std::unique_ptr<Collectives> inner_;
  int left_[2];  // calls until one fails; 0: never
};

int run(const Runtime& runtime, const std::string& where, int number) {
  ParallelOptions options;
  options.strategy = Strategy::fl_hsdp;
  options.groups = 2;
  options.shard_size = 2;
  const ProcessGrid grid(options, runtime.size(), runtime.rank());
  const Communicators communicators(runtime.world(), grid);
  const auto at = [&](const char* name) { return runtime.rank() == 1 && where == name ? number : 0; };
  Failing shard(communicators.shard, at("gather"), at("reduction"));
  Failing replica(communicators.replica, at("aggregation"), at("replica_sum"));
  FederationLinks links(grid, communicators);
  LlamaConfig config = llama_preset("tiny");
  const Exec exec;
  ShardedParameters<float> parameters(llama_units(config), shard, replica, AfterForward::reshard);
  initialise(exec, config, 1, parameters);
  Llama<float> model(config, {1, 16, Recompute::none, 64}, parameters);
  Optimizer<float> optimizer(OptimizerOptions(), parameters, communicators.shard);
  FederationOptions federated;
  federated.every = 2;
  Federation<float> federation(federated, 1000, grid, communicators, links, replica, parameters);
  Batch batch;
  batch.sequences = 1, batch.length = 16;
  batch.tokens.assign(16, 1);
  batch.targets.assign(16, 2);
  for (std::int64_t step = 1; step <= 1000; ++step) {
    const StepResult result = training_step<float>(exec, model, optimizer, communicators.group, {batch}, 1e-3);
    federation.count_tokens(result.tokens);
    if (federation.due(step)) federation.aggregate(exec, parameters);
  }
  return 0;
}

}  // namespace
}  // namespace atl

int main(int argc, char** argv) {
  const std::string where = argc > 1 ? argv[1] : "";
  const int number = argc > 2 ? std::atoi(argv[2]) : 1;
  return atl::on_all_ranks([&](const atl::Runtime& runtime) { return atl::run(runtime, where, number); });
}
