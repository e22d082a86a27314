/// Short texts to rank 0, which nobody waits for. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/communicator.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace atl {

/// For reports about work beside training. All calls return at once.
class Mailbox {
 public:
  /// Messages meet no others: a duplicate of `comm`. Collective.
  explicit Mailbox(const Communicator& comm) : comm_(comm.get()) {}
  /// Waits until this rank's messages have been taken.
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  /// Sends to rank 0 (also from rank 0). The last message must have been taken: empty() is true.
  void send(std::string text);
  bool empty();  ///< nothing of this rank is under way
  /// Rank 0: the next message that has come, from whichever rank, and that rank.
  std::optional<std::pair<int, std::string>> receive();

 private:
  Communicator comm_;
  std::string text_;
  std::vector<MPI_Request> requests_;
  std::optional<std::string> own_;  ///< of rank 0 to itself
};

}  // namespace atl
