/// SPDX-License-Identifier: Apache-2.0
#include "parallel/sharded_parameters.hpp"

#include "core/launch.hpp"

namespace atl {

template <class T>
ShardedParameters<T>::ShardedParameters(const std::vector<UnitSpec>& units, Collectives& shard, Collectives& replica,
                                        AfterForward after)
    : shard_(shard), replica_(replica), after_(after) {
  std::vector<std::size_t> full_size, gradient_size;
  for (std::size_t i = 0; i < units.size(); ++i) {
    ShardLayout layout(units[i], shard.size());
    const Range owned = layout.owned(shard.rank());
    const std::size_t n = layout.shard_size(), buffer = static_cast<std::size_t>(units[i].buffer);
    const std::string& name = units[i].name;
    full_size.resize(std::max(full_size.size(), (after == AfterForward::keep ? i : buffer) + 1));
    gradient_size.resize(std::max(gradient_size.size(), buffer + 1));
    auto& full = full_size[after == AfterForward::keep ? i : buffer];
    full = std::max(full, layout.padded_size());
    gradient_size[buffer] = std::max(gradient_size[buffer], layout.padded_size());
    units_.push_back({std::move(layout), owned, allocate<R>("atoll::master " + name, n),
                      allocate<R>("atoll::gradient " + name, n), View1<R>(), View1<R>()});
  }
  // A replica of one rank computes on its master weights; copies exist only where the type or the size differs.
  const bool needs_full = shard.size() > 1 || !std::is_same_v<T, R>;
  for (const auto size : full_size) buffers_.push_back({allocate<T>("atoll::gathered", needs_full ? size : 0), none});
  for (const auto size : gradient_size) gradient_buffers_.push_back(allocate<R>("atoll::full_gradient", size));
}

template <class T>
std::int64_t ShardedParameters<T>::parameter_count() const {
  std::int64_t count = 0;
  for (const auto& unit : units_) count += static_cast<std::int64_t>(unit.layout.size());
  return count;
}

template <class T>
std::size_t ShardedParameters<T>::slot(std::size_t index) const {
  return after_ == AfterForward::keep ? index : static_cast<std::size_t>(units_[index].layout.unit().buffer);
}

template <class T>
View1<const T> ShardedParameters<T>::gather(const Exec& exec, std::size_t index) {
  auto& unit = units_[index];
  if constexpr (std::is_same_v<T, R>)
    if (shard_.size() == 1) return unit.master;
  Buffer& buffer = buffers_[slot(index)];
  const View1<T> full = part(buffer.full, 0, unit.layout.padded_size());
  if (buffer.unit == index) return full;
  ATOLL_REQUIRE(buffer.unit == none);
  const std::size_t n = unit.layout.shard_size();
  if constexpr (std::is_same_v<T, R>) {
    shard_.all_gather(unit.master.data(), full.data(), n, element_of<T>(), exec).wait();
  } else {
    T* const mine = full.data() + n * static_cast<std::size_t>(shard_.rank());
    const R* const from = unit.master.data();
    for_each(
        "atoll::cast_parameters", exec, n, KOKKOS_LAMBDA(const std::int64_t i) { mine[i] = T(from[i]); });
    shard_.all_gather(mine, full.data(), n, element_of<T>(), exec).wait();
  }
  buffer.unit = index;
  return full;
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
  Buffer& buffer = buffers_[slot(index)];
  if (buffer.unit == index) buffer.unit = none;
}

template <class T>
View1<Accumulator<T>> ShardedParameters<T>::gradient(const Exec& exec, std::size_t index) {
  const auto& unit = units_[index];
  const View1<R>& buffer = gradient_buffers_[static_cast<std::size_t>(unit.layout.unit().buffer)];
  const std::size_t size = unit.layout.size(), padded = unit.layout.padded_size();
  fill(exec, part(buffer, size, padded - size), R(0));
  return part(buffer, 0, padded);
}

template <class T>
void ShardedParameters<T>::reduce(const Exec& exec, std::size_t index) {
  auto& unit = units_[index];
  const View1<R>& full = gradient_buffers_[static_cast<std::size_t>(unit.layout.unit().buffer)];
  shard_
      .reduce_scatter(full.data(), unit.gradient.data(), unit.layout.shard_size(), element_of<R>(), unit.has_gradient,
                      exec)
      .wait();
  unit.has_gradient = true;
}

template <class T>
void ShardedParameters<T>::reduce_over_replicas(const Exec& exec) {
  if (replica_.size() == 1) return;
  for (auto& unit : units_)
    replica_.all_reduce(unit.gradient.data(), unit.layout.shard_size(), element_of<R>(), exec).wait();
}

template <class T>
void ShardedParameters<T>::clear_gradients() {
  for (auto& unit : units_) unit.has_gradient = false;
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

}  // namespace atl
