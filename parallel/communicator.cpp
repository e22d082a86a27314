/// Owned communicators and agreement between ranks. SPDX-License-Identifier: Apache-2.0
#include "parallel/communicator.hpp"

#include "core/random.hpp"
#include "parallel/mpi_error.hpp"
#include "parallel/mpi_operation.hpp"
#include "parallel/mpi_transfer.hpp"
#include "parallel/waiting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace atl {

namespace {

void set_up(MPI_Comm comm, int& rank, int& size) {
  ATOLL_MPI(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
  ATOLL_MPI(MPI_Comm_rank(comm, &rank));
  ATOLL_MPI(MPI_Comm_size(comm, &size));
}

}  // namespace

Communicator::Communicator(MPI_Comm parent) {
  ATOLL_MPI(MPI_Comm_dup(parent, &comm_));
  set_up(comm_, rank_, size_);
}

Communicator::Communicator(const Communicator& parent, int color, int key) {
  ATOLL_REQUIRE(color >= 0);
  parent.barrier();  // MPI_Comm_split spins until all have come; this waits in the quiet way
  ATOLL_MPI(MPI_Comm_split(parent.get(), color, key, &comm_));
  set_up(comm_, rank_, size_);
}

Communicator::Communicator(const Communicator& parent, const std::vector<int>& members) {
  MPI_Group all = MPI_GROUP_NULL, mine = MPI_GROUP_NULL;
  ATOLL_MPI(MPI_Comm_group(parent.get(), &all));
  ATOLL_MPI(MPI_Group_incl(all, static_cast<int>(members.size()), members.data(), &mine));
  ATOLL_MPI(MPI_Comm_create_group(parent.get(), mine, 0, &comm_));
  ATOLL_MPI(MPI_Group_free(&mine));
  ATOLL_MPI(MPI_Group_free(&all));
  ATOLL_REQUIRE(comm_ != MPI_COMM_NULL);
  set_up(comm_, rank_, size_);
}

Communicator::~Communicator() {
  if (comm_ == MPI_COMM_NULL) return;
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0) MPI_Comm_free(&comm_);
}

Communicator::Communicator(Communicator&& other) noexcept
    : comm_(std::exchange(other.comm_, MPI_COMM_NULL)),
      rank_(other.rank_),
      size_(other.size_),
      seconds_waited_(other.seconds_waited_) {}

Communicator& Communicator::operator=(Communicator&& other) noexcept {
  // The old communicator leaves with `other`, whose end frees it.
  std::swap(comm_, other.comm_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  std::swap(seconds_waited_, other.seconds_waited_);
  return *this;
}

void Communicator::complete(std::vector<MPI_Request>& requests) const {
  CommunicationStats stats;
  {
    const ExposedTime clock(stats);
    wait_all(requests);
  }
  seconds_waited_ += stats.seconds_waited;
}

template <class T>
std::vector<T> Communicator::gather_values(const T& mine, MPI_Datatype type) const {
  std::vector<T> all(static_cast<std::size_t>(size_));
  std::vector<MPI_Request> requests;
  start_all_gather(&mine, all.data(), 1, type, comm_, requests);
  complete(requests);
  return all;
}

void Communicator::barrier() const {
  std::vector<MPI_Request> requests(1);
  ATOLL_MPI(MPI_Ibarrier(comm_, requests.data()));
  complete(requests);
}

std::string Communicator::broadcast(const std::string& text, int root) const {
  std::uint64_t length = text.size();
  std::vector<MPI_Request> requests;
  start_broadcast(&length, 1, MPI_UINT64_T, root, comm_, requests);
  complete(requests);
  std::string result = rank_ == root ? text : std::string(length, '\0');
  requests.clear();
  if (length > 0) start_broadcast(result.data(), length, MPI_BYTE, root, comm_, requests);
  complete(requests);
  return result;
}

std::vector<double> Communicator::all_gather(const std::vector<double>& mine) const {
  std::vector<double> all(mine.size() * static_cast<std::size_t>(size_));
  std::vector<MPI_Request> requests;
  if (!mine.empty()) start_all_gather(mine.data(), all.data(), mine.size(), MPI_DOUBLE, comm_, requests);
  complete(requests);
  return all;
}

void Communicator::broadcast(std::vector<double>& values, int root) const {
  std::vector<MPI_Request> requests;
  if (!values.empty()) start_broadcast(values.data(), values.size(), MPI_DOUBLE, root, comm_, requests);
  wait_all(requests);
}

double Communicator::sum(double mine) const {
  double total = 0;
  for (const double value : gather_values(mine, MPI_DOUBLE)) total += value;
  return total;
}

std::int64_t Communicator::sum(std::int64_t mine) const {
  std::int64_t total = 0;
  for (const std::int64_t value : gather_values(mine, MPI_INT64_T)) total += value;
  return total;
}

double Communicator::max(double mine) const {
  double largest = mine;
  for (const double value : gather_values(mine, MPI_DOUBLE)) {
    // A NaN must not get lost: std::max keeps or drops it by position.
    if (std::isnan(value) || value > largest) largest = value;
  }
  return largest;
}

void collectively(const Communicator& comm, const std::function<void()>& work) {
  constexpr int fine = -1;
  int outcome = fine;
  std::string message;
  try {
    work();
  } catch (const Error& error) {
    outcome = static_cast<int>(error.code());
    message = error.what();
  } catch (const std::exception& error) {
    outcome = static_cast<int>(ExitCode::failure);
    message = error.what();
  } catch (...) {
    outcome = static_cast<int>(ExitCode::failure);
    message = "an exception that is no std::exception";
  }
  const std::vector<int> outcomes = comm.gather_values(outcome, MPI_INT);
  const auto failed = std::find_if(outcomes.begin(), outcomes.end(), [](int code) { return code != fine; });
  if (failed == outcomes.end()) return;
  throw CollectiveError(comm.broadcast(message, static_cast<int>(failed - outcomes.begin())),
                        static_cast<ExitCode>(*failed));
}

void require_equal(const Communicator& comm, const std::string& value, const std::string& what) {
  const std::vector<std::uint64_t> hashes = comm.gather_values(random_key(value.size(), value), MPI_UINT64_T);
  const auto other = std::find_if(hashes.begin(), hashes.end(), [&](std::uint64_t hash) { return hash != hashes[0]; });
  if (other == hashes.end()) return;
  throw CollectiveError(
      fmt::format("{} differs between ranks: rank {} of {} has another one than rank 0; start all ranks "
                  "with the same program, files and command line",
                  what, other - hashes.begin(), comm.size()),
      ExitCode::usage);
}

namespace {

/// With unequal groups: one color for the first ranks of all groups, one for any other rank.
int color_of_federation(const ProcessGrid& grid) {
  return grid.equal_groups() || grid.rank_in_group() == 0 ? grid.rank_in_group() : grid.rank();
}

}  // namespace

Communicators::Communicators(MPI_Comm parent, const ProcessGrid& grid)
    : world(parent),
      group(world, grid.group(), grid.rank_in_group()),
      replica(group, grid.shard(), grid.replica()),
      shard(group, grid.replica(), grid.shard()),
      federation(world, color_of_federation(grid), grid.group()),
      groups_(grid.number_of_groups()),
      equal_groups_(grid.equal_groups()) {
  // A grid of another world would have made other communicators on each rank.
  ATOLL_REQUIRE(world.size() == grid.world_size() && world.rank() == grid.rank());
  ATOLL_REQUIRE(group.size() == grid.shape().ranks() && group.rank() == grid.rank_in_group());
}

std::vector<double> Communicators::gather_over_groups(const std::vector<double>& mine) const {
  if (equal_groups_) return federation.all_gather(mine);
  std::vector<double> all(mine.size() * static_cast<std::size_t>(groups_));
  if (group.rank() == 0) all = federation.all_gather(mine);
  group.broadcast(all);
  return all;
}

}  // namespace atl
