/// SPDX-License-Identifier: Apache-2.0
#include "parallel/mailbox.hpp"

#include "parallel/mpi_error.hpp"
#include "parallel/waiting.hpp"

#include <exception>

namespace atl {

Mailbox::~Mailbox() {
  // While an exception ends the job nobody may be there to take it.
  if (std::uncaught_exceptions() == 0 && !requests_.empty()) wait_all(requests_);
}

void Mailbox::send(std::string text) {
  ATOLL_REQUIRE(empty());
  if (comm_.rank() == 0) {
    own_ = std::move(text);
    return;
  }
  text_ = std::move(text);
  ATOLL_REQUIRE(text_.size() < (std::size_t{1} << 31));
  requests_.assign(1, MPI_REQUEST_NULL);
  ATOLL_MPI(MPI_Isend(text_.data(), static_cast<int>(text_.size()), MPI_BYTE, 0, 0, comm_.get(), requests_.data()));
}

bool Mailbox::empty() { return !own_ && (requests_.empty() || test_all(requests_)); }

std::optional<std::pair<int, std::string>> Mailbox::receive() {
  ATOLL_REQUIRE(comm_.rank() == 0);
  if (own_) return std::pair{0, *std::exchange(own_, std::nullopt)};
  int found = 0, length = 0;
  MPI_Status status;
  ATOLL_MPI(MPI_Iprobe(MPI_ANY_SOURCE, 0, comm_.get(), &found, &status));
  if (found == 0) return std::nullopt;
  ATOLL_MPI(MPI_Get_count(&status, MPI_BYTE, &length));
  std::string text(static_cast<std::size_t>(length), '\0');
  std::vector<MPI_Request> requests(1);
  ATOLL_MPI(MPI_Irecv(text.data(), length, MPI_BYTE, status.MPI_SOURCE, 0, comm_.get(), requests.data()));
  wait_all(requests);
  return std::pair{status.MPI_SOURCE, std::move(text)};
}

}  // namespace atl
