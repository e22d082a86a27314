/// The valid name nearest to a mistyped one, for error messages. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace atl {

/// Levenshtein distance: insertions, deletions and replacements that turn a into b.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row[b.size()];
}

/// The first of the nearest names; empty when there is none. `at_most` edits, unless every distance is accepted.
template <class Names>
std::string nearest_name(std::string_view wrong, const Names& names, std::size_t at_most = std::string::npos) {
  std::string best;
  std::size_t best_distance = at_most;
  bool found = false;
  for (const auto& name : names) {
    const std::size_t distance = edit_distance(wrong, name);
    if (distance < best_distance || (!found && distance <= best_distance)) {
      best = std::string(name);
      best_distance = distance;
      found = true;
    }
  }
  return best;
}

}  // namespace atl
