/// Collectives over NCCL (or RCCL, which has the same interface). SPDX-License-Identifier: Apache-2.0
///
/// All of an operation - transfers, and the sum in between - is put into the stream of its communicator when it is
/// called, after what Exec has to do until then; so it goes on beside the kernels of Exec, and nobody has to drive it.
///
/// Order: NCCL's kernels occupy a device until the other ranks have come, so operations of two communicators that two
/// ranks start in opposite order would wait for each other for ever, as would too many at once. Here an operation
/// starts on the device after the one that the process called before has ended, whatever its communicator. As all ranks
/// call those that they share in one order (which depends on the calls alone, never on timing), none can hold up
/// another.
#include "parallel/collectives_backends.hpp"
#include "parallel/device_stream.hpp"
#include "parallel/mpi_operation.hpp"
#include "parallel/nccl_communicator.hpp"
#include "parallel/rank_order_sum.hpp"
#include "parallel/runtime.hpp"
#include "parallel/shard_layout.hpp"

#include <exception>
#include <memory>

namespace atl {

namespace {

using Bytes = unsigned char;
using Buffer = Kokkos::View<Bytes*, Kokkos::LayoutRight, Memory>;

constexpr const char* receive_label = "atoll::receive_workspace";
constexpr const char* send_label = "atoll::send_workspace";

ncclDataType_t type_of(Element element) { return element == Element::f64 ? ncclFloat64 : ncclFloat32; }

/// The end of the last operation that this process called; empty once nobody waits for it any more.
std::weak_ptr<DeviceEvent>& last_operation() {
  static std::weak_ptr<DeviceEvent> event;
  return event;
}

class NcclOperation final : public Ticket::Operation {
 public:
  NcclOperation(NcclCommunicator& comm, std::shared_ptr<DeviceEvent> end, CommunicationStats& stats)
      : comm_(comm), end_(std::move(end)), stats_(stats) {}
  ~NcclOperation() override {
    if (complete_) return;
    if (std::uncaught_exceptions() > 0) {
      NcclCommunicator::abort_all();  // the arrays are about to be freed, and other ranks may never come
    } else {
      try {
        wait();
      } catch (const Error& error) {
        abort_job(error.what(), error.code());
      }
    }
  }

  bool test() override {
    if (complete_) return true;
    const ExposedTime clock(stats_);
    const bool ended = end_->complete();
    comm_.check();
    return complete_ = ended;
  }
  void wait() override {
    if (complete_) return;
    const ExposedTime clock(stats_);
    try {
      comm_.wait([&] { return end_->complete(); }, "a collective operation");
    } catch (...) {
      complete_ = true;  // nobody may wait for it again, least of all a destructor on the way out
      throw;
    }
    complete_ = true;
  }

 private:
  NcclCommunicator& comm_;
  std::shared_ptr<DeviceEvent> end_;
  CommunicationStats& stats_;
  bool complete_ = false;
};

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(const Communicator& comm, const CollectivesOptions& options)
      : ranks_comm_(comm.get()),
        nccl_(ranks_comm_, options.time_out),
        sums_(options.sums),
        ranks_(static_cast<std::size_t>(comm.size())),
        me_(static_cast<std::size_t>(comm.rank())) {}
  int rank() const override { return static_cast<int>(me_); }
  int size() const override { return static_cast<int>(ranks_); }

  Ticket all_gather(const void* send, void* recv, std::size_t count, Element element, const Exec& exec) override;
  Ticket reduce_scatter(const void* send, void* recv, std::size_t count, Element element, bool accumulate,
                        const Exec& exec, Wire wire) override;
  Ticket all_reduce(void* data, std::size_t count, Element element, const Exec& exec, Wire wire) override;

 private:
  template <class F>
  Ticket start(const Exec& exec, std::uint64_t bytes_sent, const F& enqueue);
  Bytes* workspace(Buffer& buffer, std::size_t bytes, const char* label);
  void round(const Bytes* from, std::size_t count, Bytes* to);
  /// Terms in bf16 are summed in fp32, which the library would not do.
  bool by_library(Wire wire) const { return sums_ == SumOrder::library && wire == Wire::exact; }
  void exchange(const Bytes* slices, std::size_t size, std::size_t width, Bytes* received, std::size_t element_bytes);
  void expect(ncclResult_t result, const char* call) { nccl_.expect(result, call); }
  /// The handle's type follows from NCCL's interface.
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.native()); }
  template <class F>
  void for_each_other(const F& f) const {
    for (std::size_t k = 1; k < ranks_; ++k) f((me_ + k) % ranks_);
  }

  Communicator ranks_comm_;
  NcclCommunicator nccl_;
  DeviceStream stream_;
  SumOrder sums_;
  std::size_t ranks_, me_;
  std::weak_ptr<DeviceEvent> last_;  // operation of this object
  Buffer received_;                  // contributions of the other ranks
  Buffer rounded_;                   // Wire::bf16 only: what is sent
};

/// `enqueue` puts the operation into the stream. It reads and writes arrays that kernels of exec may still work on.
template <class F>
Ticket NcclCollectives::start(const Exec& exec, std::uint64_t bytes_sent, const F& enqueue) {
  const ExposedTime clock(stats_);
  stats_.bytes_sent += bytes_sent;
  DeviceEvent ready;
  ready.record(exec);
  stream_.wait_for(ready);
  if (const auto before = last_operation().lock()) stream_.wait_for(*before);
  enqueue();
  const auto end = std::make_shared<DeviceEvent>();
  stream_.record(*end);
  last_ = last_operation() = end;
  return Ticket(std::make_unique<NcclOperation>(nccl_, end, stats_));
}

/// One of each kind for all operations of the object, since they run one after another. Grows to the largest that was
/// needed.
Bytes* NcclCollectives::workspace(Buffer& buffer, std::size_t bytes, const char* label) {
  if (buffer.extent(0) < bytes) {
    if (const auto last = last_.lock()) nccl_.wait([&] { return last->complete(); }, "a collective operation");
    buffer = {};  // first free, then allocate
    buffer = Buffer(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), bytes);
  }
  return buffer.data();
}

/// Wire::bf16: terms, or sums, as they travel.
void NcclCollectives::round(const Bytes* from, std::size_t count, Bytes* to) {
  stream_.launch([=](const Exec& on) {
    round_to_bf16(reinterpret_cast<const float*>(from), count, reinterpret_cast<bf16*>(to), on);
  });
}

/// Pairwise: slice r of `slices` (those of equal_part: `width` elements, the last ones shorter) to every other rank r,
/// and theirs of my slice to `received`, in rank order, side by side.
void NcclCollectives::exchange(const Bytes* slices, std::size_t size, std::size_t width, Bytes* received,
                               std::size_t element_bytes) {
  const std::size_t mine = equal_part(size, ranks_, me_).size() * element_bytes;
  nccl_.group([&] {
    for_each_other([&](std::size_t r) {
      const std::size_t theirs = equal_part(size, ranks_, r).size() * element_bytes;
      if (theirs > 0)
        expect(
            ncclSend(slices + r * width * element_bytes, theirs, ncclUint8, static_cast<int>(r), nccl_.get(), stream()),
            "ncclSend");
      if (mine > 0)
        expect(ncclRecv(received + (r < me_ ? r : r - 1) * mine, mine, ncclUint8, static_cast<int>(r), nccl_.get(),
                        stream()),
               "ncclRecv");
    });
  });
}

Ticket NcclCollectives::all_gather(const void* send, void* recv, std::size_t count, Element element, const Exec& exec) {
  const std::size_t bytes = count * size_of(element);
  const Bytes* const mine = static_cast<const Bytes*>(send);
  Bytes* const all = static_cast<Bytes*>(recv);
  ATOLL_REQUIRE(mine == all + me_ * bytes || mine + bytes <= all || mine >= all + ranks_ * bytes);
  if (count == 0) return Ticket();
  return start(exec, (ranks_ - 1) * bytes, [&] {
    nccl_.group([&] { expect(ncclAllGather(send, recv, bytes, ncclUint8, nccl_.get(), stream()), "ncclAllGather"); });
  });
}

Ticket NcclCollectives::reduce_scatter(const void* send, void* recv, std::size_t count, Element element,
                                       bool accumulate, const Exec& exec, Wire wire) {
  ATOLL_REQUIRE(element == Element::f32 || (element == Element::f64 && wire == Wire::exact));
  const Element sent = wire == Wire::bf16 ? Element::bf16 : element;
  const std::size_t width = size_of(sent), bytes = count * width, others = (ranks_ - 1) * bytes;
  const std::size_t room = count * size_of(element);
  const Bytes* const slices = static_cast<const Bytes*>(send);
  const Bytes* const out = static_cast<const Bytes*>(recv);
  ATOLL_REQUIRE(out == slices + me_ * room || out + room <= slices || out >= slices + ranks_ * room);
  if (count == 0) return Ticket();
  const int ranks = size(), me = rank();
  if (by_library(wire)) {
    Bytes* const sum = accumulate ? workspace(received_, room, receive_label) : static_cast<Bytes*>(recv);
    return start(exec, others, [&] {
      nccl_.group([&] {
        expect(ncclReduceScatter(send, sum, count, type_of(element), ncclSum, nccl_.get(), stream()),
               "ncclReduceScatter");
      });
      if (!accumulate) return;
      stream_.launch(
          [=](const Exec& on) { sum_in_rank_order(sum, nullptr, recv, count, 1, 0, element, accumulate, on); });
    });
  }
  Bytes* const received = workspace(received_, others, receive_label);
  const Bytes* terms = slices;
  if (wire == Wire::bf16) terms = workspace(rounded_, ranks_ * bytes, send_label);
  const Bytes* const own = terms + me_ * bytes;
  return start(exec, others, [&] {
    if (wire == Wire::bf16) round(slices, ranks_ * count, rounded_.data());
    exchange(terms, ranks_ * count, count, received, width);
    stream_.launch(
        [=](const Exec& on) { sum_in_rank_order(own, received, recv, count, ranks, me, sent, accumulate, on); });
  });
}

Ticket NcclCollectives::all_reduce(void* data, std::size_t count, Element element, const Exec& exec, Wire wire) {
  ATOLL_REQUIRE(element == Element::f32 || (element == Element::f64 && wire == Wire::exact));
  if (count == 0) return Ticket();
  const Element sent = wire == Wire::bf16 ? Element::bf16 : element;
  const std::size_t bytes = size_of(sent), width = equal_part(count, ranks_, 0).size();
  const std::uint64_t bytes_sent = 2 * (ranks_ - 1) * width * bytes;
  if (by_library(wire)) {
    return start(exec, bytes_sent, [&] {
      nccl_.group([&] {
        expect(ncclAllReduce(data, data, count, type_of(element), ncclSum, nccl_.get(), stream()), "ncclAllReduce");
      });
    });
  }
  const Range mine = equal_part(count, ranks_, me_);
  Bytes* const received = workspace(received_, (ranks_ - 1) * mine.size() * bytes, receive_label);
  // The array of terms, in which the sums are gathered: the caller's own, or that of their rounded values.
  Bytes* const all = wire == Wire::bf16 ? workspace(rounded_, count * bytes, send_label) : static_cast<Bytes*>(data);
  Bytes* const own = all + mine.begin * bytes;
  Bytes* const result = static_cast<Bytes*>(data) + mine.begin * size_of(element);
  const int ranks = size(), me = rank();
  return start(exec, bytes_sent, [&] {
    if (wire == Wire::bf16) round(static_cast<const Bytes*>(data), count, all);
    exchange(all, count, width, received, bytes);
    stream_.launch(
        [=](const Exec& on) { sum_in_rank_order(own, received, result, mine.size(), ranks, me, sent, false, on); });
    if (wire == Wire::bf16) round(result, mine.size(), own);
    nccl_.group([&] {
      for_each_other([&](std::size_t r) {
        const Range theirs = equal_part(count, ranks_, r);
        if (!mine.empty())
          expect(ncclSend(own, mine.size() * bytes, ncclUint8, static_cast<int>(r), nccl_.get(), stream()), "ncclSend");
        if (!theirs.empty())
          expect(ncclRecv(all + theirs.begin * bytes, theirs.size() * bytes, ncclUint8, static_cast<int>(r),
                          nccl_.get(), stream()),
                 "ncclRecv");
      });
    });
    if (wire == Wire::bf16)
      stream_.launch([=](const Exec& on) {
        widen_from_bf16(reinterpret_cast<const bf16*>(all), count, static_cast<float*>(data), on);
      });
  });
}

}  // namespace

std::unique_ptr<Collectives> make_nccl_collectives(const Communicator& comm, const CollectivesOptions& options) {
  // One rank sends nothing, and needs no communicator.
  if (comm.size() == 1) return make_mpi_collectives(comm);
  return std::make_unique<NcclCollectives>(comm, options);
}

}  // namespace atl
