/// SPDX-License-Identifier: Apache-2.0
#include "model/initialise.hpp"

#include "core/launch.hpp"
#include "core/random.hpp"

namespace atl {

template <class T>
void initialise(const Exec& exec, const LlamaConfig& config, std::uint64_t seed, ShardedParameters<T>& parameters) {
  using R = Accumulator<T>;
  for (std::size_t u = 0; u < parameters.number_of_units(); ++u) {
    auto& unit = parameters.unit(u);
    const auto& tensors = unit.layout.unit().tensors;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const Range mine = unit.owned_of(i);
      if (mine.empty()) continue;
      const View1<R> values = unit.local(unit.master, mine);
      if (tensors[i].shape.size() == 1) {
        fill(exec, values, R(1));
        continue;
      }
      const std::uint64_t key = random_key(seed, tensors[i].name), first = mine.begin - unit.layout.tensor(i).begin;
      const double deviation = config.initializer_range;
      for_each(
          "atoll::initialise", exec, mine.size(), KOKKOS_LAMBDA(const std::int64_t j) {
            values(j) = static_cast<R>(deviation * random_normal(key, first + static_cast<std::uint64_t>(j)));
          });
    }
  }
  exec.fence();
}

template void initialise<float>(const Exec&, const LlamaConfig&, std::uint64_t, ShardedParameters<float>&);
template void initialise<double>(const Exec&, const LlamaConfig&, std::uint64_t, ShardedParameters<double>&);
template void initialise<bf16>(const Exec&, const LlamaConfig&, std::uint64_t, ShardedParameters<bf16>&);

}  // namespace atl
