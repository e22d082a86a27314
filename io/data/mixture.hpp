/// Several sources with weights: which one each sequence of training comes from. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/data/token_source.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace atl {

/// Data to train on: one source, or several with the share of the sequences that each is to have.
struct TrainingData {
  TrainingData() = default;
  template <class Source>
  TrainingData(std::shared_ptr<Source> source) : sources{std::move(source)} {}  // NOLINT: one source is data
  TrainingData(std::vector<std::shared_ptr<const TokenSource>> all, std::vector<double> shares)
      : sources(std::move(all)), weights(std::move(shares)) {}

  std::vector<std::shared_ptr<const TokenSource>> sources;
  std::vector<double> weights;  ///< above 0, of any sum; empty: in proportion to the sources' sequences
};

/// Deals the positions 0, 1, 2, ... to sources, a pure function of (weights, seed, position): no state, no table.
///
/// The sources are the leaves of a binary tree. A node whose left half has the share f of its weight sends its q-th
/// position left where floor((q + 1) f + 1/2) > floor(q f + 1/2), so that floor(q f + 1/2) of its first q go left, as
/// lines are drawn on a grid (Bresenham, IBM Systems Journal 4, 1965). So of the first P positions source k of K gets
/// w_k P up to ceil(log2 K) / 2, for ever. Positions are shuffled in blocks of 256, anew in each: else sources would
/// come in a rhythm, with which slots of a batch, or groups, could fall in step. So the bound holds where P is a
/// multiple of 256; in between, the share of the block begun is that of a random draw from it without replacement.
class MixtureOrder {
 public:
  static constexpr std::int64_t block = 256;

  MixtureOrder(const std::vector<double>& weights, std::uint64_t seed);

  struct Place {
    std::size_t source = 0;
    std::int64_t index = 0;  ///< how many positions of the source come before
  };
  /// `position` < 2^61. Each (source, index) is the place of exactly one position.
  Place operator()(std::int64_t position) const;

 private:
  std::vector<double> before_;  // weight of the sources before each, and of all
  std::uint64_t seed_;
};

}  // namespace atl
