/// A scratch folder that all ranks know; rank 0 makes and removes it. SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/communicator.hpp"
#include "tests/io/scratch_folder.hpp"

#include <optional>

namespace atl {

class SharedFolder {
 public:
  explicit SharedFolder(const Communicator& comm) : comm_(comm) {
    if (comm.rank() == 0) mine_.emplace();
    path_ = comm.broadcast(mine_ ? mine_->path() : "");
  }
  ~SharedFolder() { comm_.barrier(); }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  const Communicator& comm_;
  std::optional<ScratchFolder> mine_;
  std::string path_;
};

}  // namespace atl
