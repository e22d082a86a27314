/// Counts of any size: direct, MPI-4, or derived types. SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi_transfer.hpp"

#include "core/errors.hpp"
#include "parallel/mpi_error.hpp"

#include <algorithm>
#include <array>

namespace atl {

namespace {

/// `count` elements of `type` as one element of a derived type; freed at the end of the scope, which MPI allows while
/// transfers that use it are under way.
class DerivedType {
 public:
  DerivedType(std::size_t count, MPI_Datatype type) {
    // Full chunks side by side, and the rest behind them.
    const std::size_t chunk = large_counts().direct;
    const std::size_t chunks = count / chunk, rest = count % chunk;
    ATOLL_REQUIRE(chunks <= INT_MAX);
    MPI_Aint lower = 0, extent = 0;
    ATOLL_MPI(MPI_Type_get_extent(type, &lower, &extent));
    MPI_Datatype one = MPI_DATATYPE_NULL, many = MPI_DATATYPE_NULL;
    ATOLL_MPI(MPI_Type_contiguous(static_cast<int>(chunk), type, &one));
    ATOLL_MPI(MPI_Type_contiguous(static_cast<int>(chunks), one, &many));
    const std::array<int, 2> lengths{1, static_cast<int>(rest)};
    const std::array<MPI_Aint, 2> places{0, static_cast<MPI_Aint>(chunks * chunk) * extent};
    const std::array<MPI_Datatype, 2> types{many, type};
    ATOLL_MPI(MPI_Type_create_struct(rest == 0 ? 1 : 2, lengths.data(), places.data(), types.data(), &type_));
    ATOLL_MPI(MPI_Type_commit(&type_));
    ATOLL_MPI(MPI_Type_free(&one));
    ATOLL_MPI(MPI_Type_free(&many));
  }
  ~DerivedType() { MPI_Type_free(&type_); }
  DerivedType(const DerivedType&) = delete;
  DerivedType& operator=(const DerivedType&) = delete;
  MPI_Datatype get() const { return type_; }

 private:
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

/// Calls direct(count, type) with an int that it fits, large(count) with MPI_Count, or direct(1, derived type).
template <class Direct, class Large>
void with_count(std::size_t count, MPI_Datatype type, const Direct& direct, [[maybe_unused]] const Large& large) {
  if (count <= large_counts().direct) {
    direct(static_cast<int>(count), type);
    return;
  }
#if MPI_VERSION >= 4
  if (large_counts().by == LargeCounts::By::large_functions) {
    large(static_cast<MPI_Count>(count));
    return;
  }
#endif
  const DerivedType derived(count, type);
  direct(1, derived.get());
}

// The large-count call exists from MPI-4 on; before, the second lambda is never called and must only compile.
#if MPI_VERSION >= 4
#define ATOLL_LARGE(call) [&](MPI_Count n) { ATOLL_MPI(call); }
#else
#define ATOLL_LARGE(call) [](std::size_t) {}
#endif

}  // namespace

LargeCounts& large_counts() {
  static LargeCounts setting;
  return setting;
}

void start_send(const void* from, std::size_t count, MPI_Datatype type, int to_rank, int tag, MPI_Comm comm,
                std::vector<MPI_Request>& requests) {
  MPI_Request request = MPI_REQUEST_NULL;
  with_count(
      count, type, [&](int n, MPI_Datatype t) { ATOLL_MPI(MPI_Isend(from, n, t, to_rank, tag, comm, &request)); },
      ATOLL_LARGE(MPI_Isend_c(from, n, type, to_rank, tag, comm, &request)));
  requests.push_back(request);
}

void start_receive(void* to, std::size_t count, MPI_Datatype type, int from_rank, int tag, MPI_Comm comm,
                   std::vector<MPI_Request>& requests) {
  MPI_Request request = MPI_REQUEST_NULL;
  with_count(
      count, type, [&](int n, MPI_Datatype t) { ATOLL_MPI(MPI_Irecv(to, n, t, from_rank, tag, comm, &request)); },
      ATOLL_LARGE(MPI_Irecv_c(to, n, type, from_rank, tag, comm, &request)));
  requests.push_back(request);
}

void start_all_gather(const void* from, void* to, std::size_t count, MPI_Datatype type, MPI_Comm comm,
                      std::vector<MPI_Request>& requests) {
  MPI_Request request = MPI_REQUEST_NULL;
  with_count(
      count, type, [&](int n, MPI_Datatype t) { ATOLL_MPI(MPI_Iallgather(from, n, t, to, n, t, comm, &request)); },
      ATOLL_LARGE(MPI_Iallgather_c(from, n, type, to, n, type, comm, &request)));
  requests.push_back(request);
}

void start_broadcast(void* data, std::size_t count, MPI_Datatype type, int root, MPI_Comm comm,
                     std::vector<MPI_Request>& requests) {
  MPI_Request request = MPI_REQUEST_NULL;
  with_count(
      count, type, [&](int n, MPI_Datatype t) { ATOLL_MPI(MPI_Ibcast(data, n, t, root, comm, &request)); },
      ATOLL_LARGE(MPI_Ibcast_c(data, n, type, root, comm, &request)));
  requests.push_back(request);
}

}  // namespace atl
