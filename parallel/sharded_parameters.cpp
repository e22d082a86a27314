/// SPDX-License-Identifier: Apache-2.0
#include "parallel/sharded_parameters.hpp"

#include "core/launch.hpp"

#include <algorithm>

namespace atl {

namespace {

// Not in the member that uses it: nvcc wants no kernel in a private member, nor in one branch of `if constexpr`.
template <class To, class From>
void cast(const Exec& exec, std::size_t n, const From* from, To* to) {
  for_each(
      "atoll::cast_parameters", exec, n, KOKKOS_LAMBDA(const std::int64_t i) { to[i] = To(from[i]); });
}

}  // namespace

std::size_t buffers_needed(const std::vector<UnitSpec>& units, int buffer, int window) {
  std::size_t most = 0, among = 0;
  for (std::size_t i = 0; i < units.size(); ++i) {
    if (units[i].buffer == buffer) ++among;
    const std::size_t width = static_cast<std::size_t>(window);
    if (i >= width && units[i - width].buffer == buffer) --among;
    most = std::max(most, among);
  }
  return most;
}

template <class T>
ShardedParameters<T>::ShardedParameters(const std::vector<UnitSpec>& units, Collectives& shard, Collectives& replica,
                                        AfterForward after, int prefetch, Wire wire)
    : shard_(shard), replica_(replica), after_(after), prefetch_(static_cast<std::size_t>(prefetch)), wire_(wire) {
  ATOLL_REQUIRE(prefetch >= 0);
  std::vector<std::size_t> gathered_size;
  const auto at_least = [](std::vector<std::size_t>& sizes, std::size_t index, std::size_t size) {
    sizes.resize(std::max(sizes.size(), index + 1));
    sizes[index] = std::max(sizes[index], size);
  };
  for (std::size_t i = 0; i < units.size(); ++i) {
    ShardLayout layout(units[i], shard.size());
    const Range owned = layout.owned(shard.rank());
    const std::size_t n = layout.shard_size(), buffer = static_cast<std::size_t>(units[i].buffer);
    const std::string& name = units[i].name;
    at_least(gathered_size, after == AfterForward::keep ? i : buffer, layout.padded_size());
    at_least(gradient_size_, buffer, layout.padded_size());
    const View1<R> master = allocate<R>("atoll::master " + name, n);
    View1<T> weights;
    if constexpr (std::is_same_v<T, R>)
      weights = master;
    else
      weights = allocate<T>("atoll::weights " + name, n);
    units_.push_back(
        {std::move(layout), owned, master, weights, allocate<R>("atoll::gradient " + name, n), View1<R>(), View1<R>()});
  }
  const auto needed = [&](std::size_t buffer, int window) {
    return buffers_needed(units, static_cast<int>(buffer), window);
  };
  for (std::size_t b = 0; b < gathered_size.size(); ++b) {
    auto& buffers = buffers_.emplace_back(after == AfterForward::keep ? 1 : needed(b, prefetch + 1));
    if (shard.size() > 1)  // a replica of one rank computes on its own weights
      for (Buffer& buffer : buffers) buffer.full = allocate<T>("atoll::gathered", gathered_size[b]);
  }
  constexpr std::int64_t any_number = 2;  // of micro-batches
  for (std::size_t b = 0; b < gradient_size_.size(); ++b)
    gradient_buffers_.emplace_back(needed(b, gradient_window(prefetch, shard.size(), any_number)));
}

template <class T>
void ShardedParameters<T>::make_current(const Exec& exec, ShardedUnit<T>& unit) {
  if (std::is_same_v<T, R> || unit.weights_current) return;
  cast(exec, unit.layout.shard_size(), unit.master.data(), unit.weights.data());
  unit.weights_current = true;
}

template <class T>
std::int64_t ShardedParameters<T>::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : units_) count += static_cast<std::int64_t>(unit.layout.size());
  return count;
}

template <class T>
auto ShardedParameters<T>::buffers_of(std::size_t index) -> std::vector<Buffer>& {
  return buffers_[after_ == AfterForward::keep ? index : static_cast<std::size_t>(units_[index].layout.unit().buffer)];
}

template <class T>
auto ShardedParameters<T>::find(std::size_t index) -> Buffer* {
  for (Buffer& buffer : buffers_of(index))
    if (buffer.unit == index) return &buffer;
  return nullptr;
}

template <class T>
bool ShardedParameters<T>::start_gather(const Exec& exec, std::size_t index) {
  if (find(index) != nullptr) return true;
  auto& candidates = buffers_of(index);
  const auto free = std::find_if(candidates.begin(), candidates.end(), [](const Buffer& b) { return b.unit == none; });
  if (free == candidates.end()) return false;
  auto& unit = units_[index];
  make_current(exec, unit);
  free->arriving =
      shard_.all_gather(unit.weights.data(), free->full.data(), unit.layout.shard_size(), element_of<T>(), exec);
  free->unit = index;
  return true;
}

template <class T>
void ShardedParameters<T>::expect_gathers(const std::vector<std::size_t>& order) {
  expected_.assign(order.begin(), order.end());
}

template <class T>
View1<const T> ShardedParameters<T>::gather(const Exec& exec, std::size_t index) {
  if (!expected_.empty()) {
    ATOLL_REQUIRE(expected_.front() == index);
    expected_.pop_front();
  }
  if (shard_.size() == 1) {
    make_current(exec, units_[index]);
    return units_[index].weights;
  }
  ATOLL_REQUIRE(start_gather(exec, index));
  Buffer& buffer = *find(index);
  buffer.arriving.wait();
  prefetch(exec);
  return part(buffer.full, 0, units_[index].layout.padded_size());
}

/// In the expected order, and no further than the first unit that finds no free buffer.
template <class T>
void ShardedParameters<T>::prefetch(const Exec& exec) {
  for (std::size_t i = 0; i < std::min(prefetch_, expected_.size()); ++i)
    if (!start_gather(exec, expected_[i])) return;
}

template <class T>
View1<const Accumulator<T>> ShardedParameters<T>::gather_master(const Exec& exec, std::size_t index) {
  const auto& unit = units_[index];
  const View1<R> full = allocate<R>("atoll::gathered_master", unit.layout.padded_size());
  shard_.all_gather(unit.master.data(), full.data(), unit.layout.shard_size(), element_of<R>(), exec).wait();
  return full;
}

template <class T>
void ShardedParameters<T>::release_after_forward(std::size_t index) {
  if (after_ == AfterForward::reshard) release(index);
}

template <class T>
void ShardedParameters<T>::release(std::size_t index) {
  Buffer* const buffer = find(index);
  if (buffer == nullptr) return;
  buffer->arriving.wait();
  buffer->unit = none;
}

template <class T>
void ShardedParameters<T>::begin_gradients(std::int64_t reductions) {
  reductions_ = reductions;
  for (auto& unit : units_) unit.reductions = 0;
}

template <class T>
View1<Accumulator<T>> ShardedParameters<T>::gradient(const Exec& exec, std::size_t index) {
  const auto& unit = units_[index];
  const std::size_t size = unit.layout.size(), padded = unit.layout.padded_size();
  const auto ready = [&](const View1<R>& buffer) {
    fill(exec, part(buffer, size, padded - size), R(0));
    return part(buffer, 0, padded);
  };
  if (whole_and_first(unit)) return ready(unit.gradient);
  const auto buffer = static_cast<std::size_t>(unit.layout.unit().buffer);
  auto& candidates = gradient_buffers_[buffer];
  const auto holds = [&](std::size_t which) {
    return std::find_if(candidates.begin(), candidates.end(), [&](const auto& b) { return b.unit == which; });
  };
  auto place = holds(index);
  if (place != candidates.end() && reducing_ == index) {  // the unit's gradient of the micro-batch before
    finish_reduction(exec);
    place = candidates.end();
  }
  if (place == candidates.end()) place = holds(none);
  if (place == candidates.end()) {
    finish_reduction(exec);
    place = holds(none);
  }
  ATOLL_REQUIRE(place != candidates.end());
  place->unit = index;
  if (place->full.extent(0) == 0) place->full = allocate<R>("atoll::full_gradient", gradient_size_[buffer]);
  return ready(place->full);
}

template <class T>
void ShardedParameters<T>::reduce(const Exec& exec, std::size_t index) {
  finish_reduction(exec);
  auto& unit = units_[index];
  reducing_ = index;
  if (whole_and_first(unit)) return finish_reduction(exec);
  const auto& candidates = gradient_buffers_[static_cast<std::size_t>(unit.layout.unit().buffer)];
  const auto place = std::find_if(candidates.begin(), candidates.end(), [&](const auto& b) { return b.unit == index; });
  ATOLL_REQUIRE(place != candidates.end());
  reduction_ = shard_.reduce_scatter(place->full.data(), unit.gradient.data(), unit.layout.shard_size(),
                                     element_of<R>(), unit.reductions > 0, exec, wire_);
  // Of one rank it is complete at once, and the sum over the replicas may begin.
  if (prefetch_ == 0 || shard_.size() == 1) finish_reduction(exec);
}

template <class T>
void ShardedParameters<T>::finish_reduction(const Exec& exec) {
  if (reducing_ == none) return;
  reduction_.wait();
  auto& unit = units_[reducing_];
  for (auto& buffer : gradient_buffers_[static_cast<std::size_t>(unit.layout.unit().buffer)])
    if (buffer.unit == reducing_) buffer.unit = none;
  reducing_ = none;
  if (++unit.reductions < reductions_ || replica_.size() == 1) return;
  replica_sum_.wait();
  replica_sum_ = replica_.all_reduce(unit.gradient.data(), unit.layout.shard_size(), element_of<R>(), exec, wire_);
  if (prefetch_ == 0) replica_sum_.wait();
}

template <class T>
void ShardedParameters<T>::finish_gradients(const Exec& exec) {
  finish_reduction(exec);
  replica_sum_.wait();
}

template <class T>
void ShardedParameters<T>::allocate_moments(int number) {
  for (auto& unit : units_) {
    const std::string name = unit.layout.unit().name;
    if (number > 0) unit.moment1 = allocate<R>("atoll::moment1 " + name, unit.layout.shard_size());
    if (number > 1) unit.moment2 = allocate<R>("atoll::moment2 " + name, unit.layout.shard_size());
  }
}

template class ShardedParameters<float>;
template class ShardedParameters<double>;
template class ShardedParameters<bf16>;

}  // namespace atl
