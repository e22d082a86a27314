/// Collectives over MPI: transfers by MPI, sums by a kernel in rank order. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "parallel/collectives.hpp"
#include "parallel/communicator.hpp"
#include "parallel/mpi_operation.hpp"
#include "parallel/mpi_transfer.hpp"
#include "parallel/rank_order_sum.hpp"
#include "parallel/shard_layout.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <string>
#include <utility>
#include <vector>

namespace atl {

namespace {

using Bytes = unsigned char;
template <class Space>
using Buffer = Kokkos::View<Bytes*, Kokkos::LayoutRight, Space>;
template <class Space>
using Borrowed = Kokkos::View<Bytes*, Kokkos::LayoutRight, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// Copies between memory spaces; complete on return, after the kernels launched on exec before.
template <class To, class From>
void copy_bytes(Bytes* to, const Bytes* from, std::size_t bytes, const Exec& exec) {
  if (bytes == 0) return;
  // Never written through: a const view would need another type of every caller.
  Kokkos::deep_copy(exec, Borrowed<To>(to, bytes), Borrowed<From>(const_cast<Bytes*>(from), bytes));
  exec.fence();
}

MPI_Datatype type_of(Element element) {
  switch (element) {
    case Element::f64:
      return MPI_DOUBLE;
    case Element::f32:
      return MPI_FLOAT;
    case Element::i32:
      return MPI_INT32_T;
    case Element::bf16:
    case Element::u16:
      return MPI_UINT16_T;
  }
  contract_violated("element is one of the enumeration", __FILE__, __LINE__);
}

/// Buffers of one operation. They grow to the largest that was needed, and are reused.
struct Workspace {
  Buffer<Memory> received;                     ///< contributions of the other ranks, for the kernel that adds them
  Buffer<Memory> rounded;                      ///< Wire::bf16 only: what is sent
  Buffer<Kokkos::HostSpace> mirror, incoming;  ///< staged only: copy of the caller's array; what arrives for `received`

  template <class Space>
  static Bytes* ensure(Buffer<Space>& buffer, std::size_t bytes, const char* label) {
    if (buffer.extent(0) < bytes) {
      buffer = Buffer<Space>();  // first free, then allocate: the old contents are of no use
      buffer = Buffer<Space>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), bytes);
    }
    return buffer.data();
  }
  std::size_t size() const { return received.extent(0) + rounded.extent(0) + mirror.extent(0); }
};

class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(const Communicator& comm, MpiAccess access)
      : comm_(comm.get()),
        direct_(access == MpiAccess::direct),
        ranks_(static_cast<std::size_t>(comm_.size())),
        me_(static_cast<std::size_t>(comm_.rank())) {}
  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }

  Ticket all_gather(const void* send, void* recv, std::size_t count, Element element, const Exec& exec) override;
  Ticket reduce_scatter(const void* send, void* recv, std::size_t count, Element element, bool accumulate,
                        const Exec& exec, Wire wire) override;
  Ticket all_reduce(void* data, std::size_t count, Element element, const Exec& exec, Wire wire) override;

 private:
  std::unique_ptr<MpiOperation> make_operation() { return std::make_unique<MpiOperation>(stats_); }
  Workspace& take_workspace(std::size_t bytes, MpiOperation& user);
  static Ticket start(std::unique_ptr<MpiOperation> operation);
  static const Bytes* terms(const void* data, std::size_t count, Wire wire, Workspace& workspace, const Exec& exec);
  void exchange(const Bytes* slices, std::size_t size, std::size_t width, Bytes* received, Element element, int tag,
                std::vector<MPI_Request>& requests);

  /// Messages of an operation have a tag of their own: its stages start at another time on each rank, and would meet
  /// those of other operations. MPI guarantees tags up to 32767; far fewer operations are under way at once.
  int next_tag() { return tag_ = (tag_ + 1) % 32767; }

  template <class F>
  void for_each_other(const F& f) const {  // starting behind oneself, so that not all ranks send to rank 0 first
    for (std::size_t k = 1; k < ranks_; ++k) f((me_ + k) % ranks_);
  }

  Communicator comm_;
  bool direct_;  ///< MPI reads and writes the arrays; otherwise it works on copies in host memory
  std::size_t ranks_, me_;
  int tag_ = 0;
  std::vector<std::unique_ptr<Workspace>> workspaces_;
  std::vector<Workspace*> free_;
};

/// The smallest free workspace that is large enough, else the largest one, which then grows: so the sizes settle after
/// the first calls.
Workspace& MpiCollectives::take_workspace(std::size_t bytes, MpiOperation& user) {
  if (free_.empty()) {
    workspaces_.push_back(std::make_unique<Workspace>());
    free_.push_back(workspaces_.back().get());
  }
  const auto best = std::min_element(free_.begin(), free_.end(), [&](const Workspace* a, const Workspace* b) {
    const bool a_fits = a->size() >= bytes, b_fits = b->size() >= bytes;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a->size() < b->size() : a->size() > b->size();
  });
  Workspace* const workspace = *best;
  free_.erase(best);
  user.completed = [this, workspace] { free_.push_back(workspace); };
  return *workspace;
}

Ticket MpiCollectives::start(std::unique_ptr<MpiOperation> operation) {
  operation->start();
  return Ticket(std::move(operation));
}

Ticket MpiCollectives::all_gather(const void* send, void* recv, std::size_t count, Element element, const Exec& exec) {
  const std::size_t bytes = count * size_of(element);
  const Bytes* const mine = static_cast<const Bytes*>(send);
  Bytes* const all = static_cast<Bytes*>(recv);
  Bytes* const my_place = all + me_ * bytes;
  ATOLL_REQUIRE(mine == my_place || mine + bytes <= all || mine >= all + ranks_ * bytes);
  if (count == 0) return Ticket();
  if (ranks_ == 1) {
    if (mine != my_place) copy_bytes<Memory, Memory>(my_place, mine, bytes, exec);
    return Ticket();
  }
  exec.fence();  // kernels may still write what is sent, or read what is received
  const ExposedTime clock(stats_);
  stats_.bytes_sent += (ranks_ - 1) * bytes;
  auto operation = make_operation();
  if (direct_) {
    start_all_gather(mine == my_place ? MPI_IN_PLACE : send, recv, count, type_of(element), comm_.get(),
                     operation->requests);
  } else {
    Workspace& workspace = take_workspace(ranks_ * bytes, *operation);
    Bytes* const mirror = Workspace::ensure(workspace.mirror, ranks_ * bytes, "atoll::host_mirror");
    copy_bytes<Kokkos::HostSpace, Memory>(mirror + me_ * bytes, mine, bytes, exec);
    start_all_gather(MPI_IN_PLACE, mirror, count, type_of(element), comm_.get(), operation->requests);
    operation->stages.push_back(
        [=, this] { copy_bytes<Memory, Kokkos::HostSpace>(all, mirror, ranks_ * bytes, exec); });
  }
  return start(std::move(operation));
}

/// Pairwise: slice r of `slices` (those of equal_part: `width` elements, the last ones shorter) to every other rank r,
/// and theirs of my slice to `received`, in rank order, side by side.
void MpiCollectives::exchange(const Bytes* slices, std::size_t size, std::size_t width, Bytes* received,
                              Element element, int tag, std::vector<MPI_Request>& requests) {
  const std::size_t bytes = size_of(element);
  const MPI_Datatype type = type_of(element);
  const std::size_t my_width = equal_part(size, ranks_, me_).size();
  for_each_other([&](std::size_t r) {
    if (my_width == 0) return;
    Bytes* const to = received + (r < me_ ? r : r - 1) * my_width * bytes;
    start_receive(to, my_width, type, static_cast<int>(r), tag, comm_.get(), requests);
  });
  for_each_other([&](std::size_t r) {
    const Range slice = equal_part(size, ranks_, r);
    if (slice.empty()) return;
    start_send(slices + r * width * bytes, slice.size(), type, static_cast<int>(r), tag, comm_.get(), requests);
  });
}

/// What is sent of an array of fp32: itself, or its values rounded.
const Bytes* MpiCollectives::terms(const void* data, std::size_t count, Wire wire, Workspace& workspace,
                                   const Exec& exec) {
  if (wire == Wire::exact) return static_cast<const Bytes*>(data);
  Bytes* const rounded = Workspace::ensure(workspace.rounded, count * sizeof(bf16), "atoll::send_workspace");
  round_to_bf16(static_cast<const float*>(data), count, reinterpret_cast<bf16*>(rounded), exec);
  exec.fence();
  return rounded;
}

Ticket MpiCollectives::reduce_scatter(const void* send, void* recv, std::size_t count, Element element, bool accumulate,
                                      const Exec& exec, Wire wire) {
  ATOLL_REQUIRE(element == Element::f32 || (element == Element::f64 && wire == Wire::exact));
  const Element sent = wire == Wire::bf16 ? Element::bf16 : element;
  const std::size_t bytes = count * size_of(sent), others = (ranks_ - 1) * bytes, room = count * size_of(element);
  const Bytes* const slices = static_cast<const Bytes*>(send);
  const Bytes* const out = static_cast<const Bytes*>(recv);
  ATOLL_REQUIRE(out == slices + me_ * room || out + room <= slices || out >= slices + ranks_ * room);
  if (count == 0) return Ticket();
  const int ranks = size(), me = rank();
  if (ranks_ == 1) {
    sum_in_rank_order(slices, nullptr, recv, count, ranks, me, element, accumulate, exec);
    return Ticket();
  }
  exec.fence();
  const ExposedTime clock(stats_);
  stats_.bytes_sent += others;
  auto operation = make_operation();
  const std::size_t copies = (wire == Wire::bf16 ? 1 : 0) + (direct_ ? 0 : 1);
  Workspace& workspace = take_workspace(copies * ranks_ * bytes + others, *operation);
  const Bytes* outgoing = terms(send, ranks_ * count, wire, workspace, exec);
  const Bytes* const own = outgoing + me_ * bytes;
  Bytes* const received = Workspace::ensure(workspace.received, others, "atoll::receive_workspace");
  Bytes* incoming = received;
  if (!direct_) {
    incoming = Workspace::ensure(workspace.incoming, others, "atoll::host_incoming");
    Bytes* const mirror = Workspace::ensure(workspace.mirror, ranks_ * bytes, "atoll::host_mirror");
    copy_bytes<Kokkos::HostSpace, Memory>(mirror, outgoing, ranks_ * bytes, exec);
    outgoing = mirror;
  }
  exchange(outgoing, ranks_ * count, count, incoming, sent, next_tag(), operation->requests);
  operation->stages.push_back([=, this] {
    if (!direct_) copy_bytes<Memory, Kokkos::HostSpace>(received, incoming, others, exec);
    sum_in_rank_order(own, received, recv, count, ranks, me, sent, accumulate, exec);
    exec.fence();  // the workspace may be written by the next operation
  });
  return start(std::move(operation));
}

Ticket MpiCollectives::all_reduce(void* data, std::size_t count, Element element, const Exec& exec, Wire wire) {
  ATOLL_REQUIRE(element == Element::f32 || (element == Element::f64 && wire == Wire::exact));
  if (count == 0 || ranks_ == 1) return Ticket();
  const Element sent = wire == Wire::bf16 ? Element::bf16 : element;
  const std::size_t bytes = size_of(sent);
  const std::size_t width = equal_part(count, ranks_, 0).size();
  const Range mine = equal_part(count, ranks_, me_);
  const std::size_t others = (ranks_ - 1) * mine.size() * bytes;
  exec.fence();
  const ExposedTime clock(stats_);
  stats_.bytes_sent += 2 * (ranks_ - 1) * width * bytes;
  auto operation = make_operation();
  const std::size_t copies = (wire == Wire::bf16 ? 1 : 0) + (direct_ ? 0 : 1);
  Workspace& workspace = take_workspace(copies * count * bytes + others, *operation);
  // The array of terms, in which the sums are gathered: of the workspace, or the caller's own.
  Bytes* const whole = const_cast<Bytes*>(terms(data, count, wire, workspace, exec));
  Bytes* const own = whole + mine.begin * bytes;
  Bytes* const result = static_cast<Bytes*>(data) + mine.begin * size_of(element);
  Bytes* const received = Workspace::ensure(workspace.received, others, "atoll::receive_workspace");
  Bytes* incoming = received;
  Bytes* all = whole;  // what MPI sends from, and gathers into
  if (!direct_) {
    incoming = Workspace::ensure(workspace.incoming, others, "atoll::host_incoming");
    all = Workspace::ensure(workspace.mirror, count * bytes, "atoll::host_mirror");
    copy_bytes<Kokkos::HostSpace, Memory>(all, whole, count * bytes, exec);
  }
  exchange(all, count, width, incoming, sent, next_tag(), operation->requests);
  const int ranks = size(), me = rank(), gather_tag = next_tag();
  // The gather is point to point too: as an MPI collective it would have to start in the same order on all ranks.
  operation->stages.push_back([=, this, requests = &operation->requests] {
    Bytes* const sum = all + mine.begin * bytes;
    if (!direct_) copy_bytes<Memory, Kokkos::HostSpace>(received, incoming, others, exec);
    sum_in_rank_order(own, received, result, mine.size(), ranks, me, sent, false, exec);
    if (wire == Wire::bf16)
      round_to_bf16(reinterpret_cast<const float*>(result), mine.size(), reinterpret_cast<bf16*>(own), exec);
    exec.fence();
    if (!direct_) copy_bytes<Kokkos::HostSpace, Memory>(sum, own, mine.size() * bytes, exec);
    for_each_other([&](std::size_t r) {
      const Range slice = equal_part(count, ranks_, r);
      if (slice.empty()) return;
      start_receive(all + slice.begin * bytes, slice.size(), type_of(sent), static_cast<int>(r), gather_tag,
                    comm_.get(), *requests);
    });
    for_each_other([&](std::size_t r) {
      if (mine.empty()) return;
      start_send(sum, mine.size(), type_of(sent), static_cast<int>(r), gather_tag, comm_.get(), *requests);
    });
  });
  if (!direct_ || wire == Wire::bf16) {
    operation->stages.push_back([=, this] {
      if (!direct_) copy_bytes<Memory, Kokkos::HostSpace>(whole, all, count * bytes, exec);
      if (wire == Wire::bf16) {
        widen_from_bf16(reinterpret_cast<const bf16*>(whole), count, static_cast<float*>(data), exec);
        exec.fence();  // the workspace may be written by the next operation
      }
    });
  }
  return start(std::move(operation));
}

}  // namespace

MpiAccess mpi_access() {
  if (Kokkos::SpaceAccessibility<Kokkos::DefaultHostExecutionSpace, Memory>::accessible) return MpiAccess::direct;
  // Extensions of MPICH and Open MPI, looked up where they are loaded, since other libraries may lack them.
  using Query = int();
  const auto says_yes = [](const char* name) {
    auto* const query = reinterpret_cast<Query*>(dlsym(RTLD_DEFAULT, name));
    return query != nullptr && query() == 1;
  };
  const std::string device = Exec::name();
  const bool yes = device == "Cuda" ? says_yes("MPIX_Query_cuda_support")
                                    : device == "HIP" && (says_yes("MPIX_Query_hip_support") ||  // MPICH
                                                          says_yes("MPIX_Query_rocm_support"));  // Open MPI
  return yes ? MpiAccess::direct : MpiAccess::staged;
}

std::unique_ptr<Collectives> make_mpi_collectives(const Communicator& comm, MpiAccess access) {
  return std::make_unique<MpiCollectives>(comm, access);
}

}  // namespace atl
