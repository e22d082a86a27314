/// Every byte that a run sends, seen at MPI's own interface, against the formulas of the cost model.
/// SPDX-License-Identifier: Apache-2.0
///
/// MPI functions are replaced by wrappers (PMPI) which note communicator, count and type. An operation on m ranks is
/// counted as what a ring sends from each: (m-1) times its count for an all-gather, the count for a message.
#include "model/step_work.hpp"
#include "tests/model/tiny_run.hpp"

#include <map>
#include <set>

namespace atl {
namespace {

struct Message {
  MPI_Comm comm;
  int to;  ///< rank of `comm`, or everybody
  std::uint64_t bytes;
};
constexpr int everybody = -1;

/// What this rank sent while a Recording lives; and, always, which communicator a duplicate was made of in the end:
/// MPI_COMM_NULL for those of a list of ranks, which join the owners of a slice in unequal groups, or in equal ones.
struct Heard {
  bool listening = false;
  std::vector<Message> messages;
  std::map<MPI_Comm, MPI_Comm> origin;
};
Heard& heard() {
  static Heard record;
  return record;
}

template <class Count>
void note(MPI_Comm comm, int to, Count count, MPI_Datatype type, int times = 1) {
  if (!heard().listening) return;
  int size = 0;
  PMPI_Type_size(type, &size);
  heard().messages.push_back(
      {comm, to,
       static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(size) * static_cast<std::uint64_t>(times)});
}
int others(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size - 1;
}

}  // namespace
}  // namespace atl

// All ways to send that atoll has, and those that it might come to have: a new one counts twice what the formulas say,
// or nothing, and shows.
extern "C" {
int MPI_Isend(const void* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  atl::note(comm, to, n, type);
  return PMPI_Isend(from, n, type, to, tag, comm, request);
}
int MPI_Send(const void* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  atl::note(comm, to, n, type);
  return PMPI_Send(from, n, type, to, tag, comm);
}
int MPI_Iallgather(const void* from, int n, MPI_Datatype type, void* into, int m, MPI_Datatype other, MPI_Comm comm,
                   MPI_Request* request) {
  atl::note(comm, atl::everybody, m, other, atl::others(comm));
  return PMPI_Iallgather(from, n, type, into, m, other, comm, request);
}
int MPI_Allgather(const void* from, int n, MPI_Datatype type, void* into, int m, MPI_Datatype other, MPI_Comm comm) {
  atl::note(comm, atl::everybody, m, other, atl::others(comm));
  return PMPI_Allgather(from, n, type, into, m, other, comm);
}
int MPI_Ireduce_scatter_block(const void* from, void* into, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request* request) {
  atl::note(comm, atl::everybody, n, type, atl::others(comm));
  return PMPI_Ireduce_scatter_block(from, into, n, type, op, comm, request);
}
int MPI_Ialltoall(const void* from, int n, MPI_Datatype type, void* into, int m, MPI_Datatype other, MPI_Comm comm,
                  MPI_Request* request) {
  atl::note(comm, atl::everybody, m, other, atl::others(comm));
  return PMPI_Ialltoall(from, n, type, into, m, other, comm, request);
}
int MPI_Iallreduce(const void* from, void* into, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request* request) {
  atl::note(comm, atl::everybody, n, type, 2);
  return PMPI_Iallreduce(from, into, n, type, op, comm, request);
}
int MPI_Allreduce(const void* from, void* into, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  atl::note(comm, atl::everybody, n, type, 2);
  return PMPI_Allreduce(from, into, n, type, op, comm);
}
int MPI_Ibcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  atl::note(comm, atl::everybody, n, type);
  return PMPI_Ibcast(data, n, type, root, comm, request);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  atl::note(comm, atl::everybody, 0, MPI_BYTE);
  return PMPI_Ibarrier(comm, request);
}
int MPI_Barrier(MPI_Comm comm) {
  atl::note(comm, atl::everybody, 0, MPI_BYTE);
  return PMPI_Barrier(comm);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  const int code = PMPI_Comm_dup(comm, copy);
  auto& origin = atl::heard().origin;
  const auto known = origin.find(comm);
  origin[*copy] = known == origin.end() ? comm : known->second;
  return code;
}
// MPI uses the handles of freed communicators again.
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
  const int code = PMPI_Comm_split(comm, color, key, part);
  atl::heard().origin.erase(*part);
  return code;
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
  const int code = PMPI_Comm_create_group(comm, group, tag, made);
  atl::heard().origin[*made] = MPI_COMM_NULL;
  return code;
}
#if MPI_VERSION >= 4
int MPI_Isend_c(const void* from, MPI_Count n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                MPI_Request* request) {
  atl::note(comm, to, n, type);
  return PMPI_Isend_c(from, n, type, to, tag, comm, request);
}
int MPI_Iallgather_c(const void* from, MPI_Count n, MPI_Datatype type, void* into, MPI_Count m, MPI_Datatype other,
                     MPI_Comm comm, MPI_Request* request) {
  atl::note(comm, atl::everybody, m, other, atl::others(comm));
  return PMPI_Iallgather_c(from, n, type, into, m, other, comm, request);
}
#endif
}

namespace atl {
namespace {

/// Bytes of arrays, by kind of communicator, and whether anything at all went to another group.
struct Volume {
  std::uint64_t shard = 0, replica = 0, federation = 0;
  bool between_groups = false;
  std::string unknown;

  std::string bytes() const { return fmt_bytes(shard, replica, federation); }
  static std::string fmt_bytes(std::uint64_t s, std::uint64_t r, std::uint64_t f) {
    return "shard " + std::to_string(s) + ", replica " + std::to_string(r) + ", federation " + std::to_string(f);
  }
};

int group_of(const ProcessGrid& grid, int world_rank) {
  int group = 0;
  while (group + 1 < grid.number_of_groups() && world_rank >= grid.first_rank(group + 1)) ++group;
  return group;
}

/// World ranks of a communicator, in its order.
std::vector<int> members(MPI_Comm comm) {
  MPI_Group some = MPI_GROUP_NULL, all = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &some);
  PMPI_Comm_group(MPI_COMM_WORLD, &all);
  std::vector<int> ranks(static_cast<std::size_t>(others(comm)) + 1), world(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] = static_cast<int>(i);
  PMPI_Group_translate_ranks(some, static_cast<int>(ranks.size()), ranks.data(), all, world.data());
  PMPI_Group_free(&some);
  PMPI_Group_free(&all);
  return world;
}

Volume volume_of(const std::vector<Message>& messages, const ProcessGrid& grid, const Communicators& own) {
  Volume volume;
  // Small values of the host go over the communicators themselves, arrays over their duplicates.
  const std::set<MPI_Comm> host{own.world.get(), own.group.get(), own.replica.get(), own.shard.get(),
                                own.federation.get()};
  for (const Message& message : messages) {
    const std::vector<int> ranks = members(message.comm);
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (message.to == everybody || message.to == static_cast<int>(i))
        volume.between_groups |= group_of(grid, ranks[i]) != grid.group();
    if (host.count(message.comm) > 0) continue;
    const auto known = heard().origin.find(message.comm);
    const MPI_Comm origin = known == heard().origin.end() ? message.comm : known->second;
    if (origin == own.shard.get())
      volume.shard += message.bytes;
    else if (origin == own.replica.get())
      volume.replica += message.bytes;
    else if (origin == own.federation.get() || origin == MPI_COMM_NULL)
      volume.federation += message.bytes;
    else
      volume.unknown += "a message of " + std::to_string(message.bytes) + " bytes over an unknown communicator; ";
  }
  return volume;
}

class Recording {
 public:
  explicit Recording(const GridWithCommunicators& place) : place_(place), before_(counted()) {
    heard().messages.clear();
    heard().listening = true;
  }
  ~Recording() { heard().listening = false; }
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  Volume intercepted() const { return volume_of(heard().messages, place_.grid, place_.communicators); }
  /// What CommunicationStats say of the same time.
  Volume counted_since() const {
    const Volume now = counted();
    return {now.shard - before_.shard, now.replica - before_.replica, now.federation - before_.federation, false, ""};
  }

 private:
  Volume counted() const {
    return {place_.shard->stats().bytes_sent, place_.replica->stats().bytes_sent, place_.links.stats().bytes_sent,
            false, ""};
  }
  const GridWithCommunicators& place_;
  Volume before_;
};

/// Units that S, R and G cut without a rest where their product is 1, 2, 4 or 8.
LlamaConfig even_config(Head head) {
  LlamaConfig config;
  config.hidden_size = 16;
  config.intermediate_size = 32;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.vocab_size = 64;
  config.tie_word_embeddings = head == Head::tied;
  complete_and_check(config);
  return config;
}

/// Bytes of a gathered parameter, of a gradient and of an averaged parameter.
struct ElementBytes {
  std::uint64_t p, g, a;
};
template <class T>
ElementBytes element_bytes(Wire wire) {
  return {sizeof(T), wire == Wire::bf16 ? 2 : sizeof(Accumulator<T>), sizeof(Accumulator<T>)};
}

/// The table of the cost model, word for word: P parameters, A micro-batches a step, bytes for each.
struct Formulas {
  std::uint64_t A, P_emb, P_blocks, P_head, P;
  ElementBytes b;
  Formulas(const LlamaConfig& config, std::uint64_t accumulate, ElementBytes bytes) : A(accumulate), b(bytes) {
    const auto units = llama_units(config);
    const bool tied = config.tie_word_embeddings;
    P_emb = ShardLayout(units.front(), 1).size();
    P_head = tied ? 0 : ShardLayout(units.back(), 1).size();
    P_blocks = static_cast<std::uint64_t>(config.num_hidden_layers) * ShardLayout(units[1], 1).size();
    P = P_emb + P_blocks + P_head;
    if (tied) P_emb *= 2;  // gathered again for the head
  }
  Volume step(const GroupShape& group, bool reshard) const {
    const std::uint64_t S = static_cast<std::uint64_t>(group.shards), R = static_cast<std::uint64_t>(group.replicas);
    Volume v;
    v.shard = A * ((P_emb + (reshard ? 2 : 1) * P_blocks + P_head) * b.p + P * b.g) * (S - 1) / S;
    v.replica = 2 * (P / S) * b.g * (R - 1) / R;
    return v;
  }
  Volume aggregation(const GroupShape& group, int groups) const {
    const std::uint64_t S = static_cast<std::uint64_t>(group.shards), R = static_cast<std::uint64_t>(group.replicas);
    const auto G = static_cast<std::uint64_t>(groups);
    Volume v;
    v.federation = 2 * (P / (S * R)) * b.a * (G - 1) / G;
    v.replica = G == 1 ? 0 : (P / S) * b.a * (R - 1) / R;
    return v;
  }
};

struct Setting {
  ParallelOptions parallel;
  std::string name;
};

/// All strategies, on all grids of this number of ranks.
std::vector<Setting> settings() {
  std::vector<Setting> all;
  const int n = world_ranks();
  const auto add = [&](Strategy strategy, int shard_size, int groups, bool reshard) {
    ParallelOptions options = grid_of(strategy, shard_size, groups);
    options.reshard_after_forward = reshard;
    all.push_back({options, std::string(name_of(strategy)) + " S " + std::to_string(shard_size) + " G " +
                                std::to_string(groups) + (reshard ? "" : ", not resharded")});
  };
  add(Strategy::ddp, 0, 0, true);
  for (const bool reshard : {true, false}) {
    add(Strategy::fsdp, 0, 0, reshard);
    for (int s = 1; s <= n; ++s)
      if (n % s == 0) add(Strategy::hsdp, s, 0, reshard);
    for (int groups = 1; groups <= n; ++groups) {
      if (n % groups != 0) continue;
      add(Strategy::fl_fsdp, 0, groups, reshard);
      for (int s = 1; s <= n / groups; ++s)
        if (n / groups % s == 0) add(Strategy::fl_hsdp, s, groups, reshard);
    }
  }
  return all;
}

/// Three steps in rounds of two: aggregations after steps 2 and 3. check(run, recording, step or 0 for aggregations).
template <class T, class Check>
void run_and_check(const LlamaConfig& config, const Setting& setting, std::size_t accumulate, Wire wire,
                   const Check& check) {
  TinyOptions options;
  options.wire = wire;
  options.federation.every = 2;
  options.steps = 3;
  TinyRun<T> run(MPI_COMM_WORLD, config, setting.parallel, options);
  const auto token = [&](std::size_t i) { return static_cast<std::int32_t>(i * 7 % 61); };
  Batch batch;
  for (std::size_t t = 0; t < static_cast<std::size_t>(options.shape.sequence_length); ++t) {
    batch.tokens.push_back(token(t));
    batch.targets.push_back(token(t + 1));
  }
  batch.length = options.shape.sequence_length;
  batch.sequences = 1;
  const std::vector<Batch> batches(accumulate, batch);
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    {
      const Recording recording(run.place);
      run.federation.count_tokens(
          training_step<T>(run.exec, run.model, run.optimizer, run.communicators.group, batches, 0.01).tokens);
      check(run, recording, step);
    }
    if (!run.federation.due(step)) continue;
    const Recording recording(run.place);
    run.aggregate_if_due(step);
    check(run, recording, 0);
  }
}

/// The same by the cost model, of the rank with the largest slices.
template <class T>
Volume planned(const LlamaConfig& config, const TinyRun<T>& run, const Setting& setting, std::size_t accumulate,
               bool aggregates) {
  StepWorkOptions options;
  options.shape = run.options.shape;
  options.after = setting.parallel.reshard_after_forward ? AfterForward::reshard : AfterForward::keep;
  options.precision = std::is_same_v<T, double>  ? Precision::fp64
                      : std::is_same_v<T, float> ? Precision::fp32
                                                 : Precision::bf16;
  if (run.options.wire == Wire::bf16) options.gradient_bytes = 2;
  options.micro_batches = static_cast<std::int64_t>(accumulate);
  const Workload work = step_work(config, options);
  const GridShape grid{run.grid.number_of_groups(), run.grid.shape().replicas, run.grid.shape().shards};
  const TrafficBytes bytes = aggregates ? aggregation_bytes(work, grid) : step_bytes(work, grid);
  return {bytes.shard, bytes.replica, bytes.federation, false, ""};
}

template <class T>
class TrafficTest : public ::testing::Test {};
using Types = ::testing::Types<float, double, bf16>;
TYPED_TEST_SUITE(TrafficTest, Types);

TYPED_TEST(TrafficTest, IsTheCostModelToTheByte) {
  using T = TypeParam;
  if (8 % world_ranks() != 0) GTEST_SKIP() << "the sizes divide evenly on 1, 2, 4 and 8 ranks";
  for (const Head head : {Head::own, Head::tied})
    for (const std::size_t accumulate : {std::size_t{1}, std::size_t{3}})
      for (const Setting& setting : settings()) {
        if (!std::is_same_v<T, float> && head == Head::tied) continue;  // fp32 has shown it
        SCOPED_TRACE(setting.name + ", accumulate " + std::to_string(accumulate));
        const LlamaConfig config = even_config(head);
        const Wire wire = std::is_same_v<T, bf16> && accumulate == 3 ? Wire::bf16 : Wire::exact;
        const Formulas formulas(config, accumulate, element_bytes<T>(wire));
        run_and_check<T>(config, setting, accumulate, wire,
                         [&](const TinyRun<T>& run, const Recording& recording, std::int64_t step) {
                           const Volume expected =
                               step > 0 ? formulas.step(run.grid.shape(), setting.parallel.reshard_after_forward)
                                        : formulas.aggregation(run.grid.shape(), run.grid.number_of_groups());
                           const Volume found = recording.intercepted();
                           EXPECT_EQ(found.unknown, "");
                           EXPECT_EQ(found.bytes(), expected.bytes()) << (step > 0 ? "in a step" : "in an aggregation");
                           EXPECT_EQ(recording.counted_since().bytes(), expected.bytes());
                           EXPECT_EQ(planned(config, run, setting, accumulate, step == 0).bytes(), expected.bytes());
                           if (step > 0) {
                             EXPECT_FALSE(found.between_groups);
                           }
                         });
      }
}

/// Units that nothing divides: the shards are padded, and a ring's slices too.
TYPED_TEST(TrafficTest, CountsPaddingAsARingSendsIt) {
  using T = TypeParam;
  const auto up = [](std::uint64_t n, std::uint64_t parts) { return (n + parts - 1) / parts; };
  for (const Head head : {Head::own, Head::tied})
    for (const Setting& setting : settings()) {
      SCOPED_TRACE(setting.name);
      const LlamaConfig config = tiny_config(head);
      const Wire wire = std::is_same_v<T, bf16> && head == Head::own ? Wire::bf16 : Wire::exact;
      const ElementBytes b = element_bytes<T>(wire);
      run_and_check<T>(
          config, setting, 1, wire, [&](const TinyRun<T>& run, const Recording& recording, std::int64_t step) {
            const auto S = static_cast<std::uint64_t>(run.grid.shape().shards);
            const auto R = static_cast<std::uint64_t>(run.grid.shape().replicas);
            const auto G = static_cast<std::uint64_t>(run.grid.number_of_groups());
            const auto r = static_cast<std::size_t>(run.grid.replica());
            const auto units = llama_units(config);
            Volume expected;
            std::uint64_t slack = 0;  // of an all-reduce whose last slices are shorter, which sends only what there is
            for (std::size_t u = 0; u < units.size(); ++u) {
              const std::uint64_t shard = up(ShardLayout(units[u], 1).size(), S);
              const bool block = u > 0 && u <= 2;
              const std::uint64_t gathers =
                  block ? (setting.parallel.reshard_after_forward ? 2 : 1) : (head == Head::tied ? 2 : 1);
              if (step > 0) {
                expected.shard += (gathers * b.p + b.g) * (S - 1) * shard;
                expected.replica += 2 * (R - 1) * up(shard, R) * b.g;
                slack += 2 * R * R * b.g;
              } else if (G > 1) {
                expected.federation += 2 * (G - 1) * up(equal_part(shard, R, r).size(), G) * b.a;
                expected.replica += (R - 1) * up(shard, R) * b.a;
                slack += 2 * G * G * b.a;
              }
            }
            const Volume found = recording.intercepted();
            EXPECT_EQ(found.unknown, "");
            EXPECT_EQ(recording.counted_since().bytes(), expected.bytes());
            EXPECT_EQ(found.shard, expected.shard);
            if (r == 0) {
              EXPECT_EQ(planned(config, run, setting, 1, step == 0).bytes(), expected.bytes());
            }
            EXPECT_LE(found.replica + found.federation, expected.replica + expected.federation);
            EXPECT_GE(found.replica + found.federation + slack, expected.replica + expected.federation);
            if (step > 0) {
              EXPECT_FALSE(found.between_groups);
            }
          });
    }
}

// Stopping early, while nobody wishes to: 32 bytes from each group's first rank to the others', once a meeting, and its
// result from there to the group.
TEST(Traffic, OfTheAgreementToStop) {
  std::vector<GridWithCommunicators*> places;
  for (const Setting& setting : settings()) places.push_back(&GridCache::get(MPI_COMM_WORLD, setting.parallel));
  if (world_ranks() > 2) places.push_back(&GridCache::get(MPI_COMM_WORLD, grid_of({{1, 1}, {1, world_ranks() - 1}})));
  for (const GridWithCommunicators* place : places) {
    SCOPED_TRACE(place->grid.describe());
    const auto G = static_cast<std::uint64_t>(place->grid.number_of_groups());
    const bool leader = place->grid.rank_in_group() == 0;
    StopAgreement agreement(place->grid, place->communicators);
    for (std::int64_t step = 1; step <= 6; ++step) {
      const bool meet = step % 3 == 0;
      {
        const Recording recording(*place);
        agreement.end_step(step, agreement.with_told({}), meet);
        const Volume found = recording.intercepted();
        EXPECT_EQ(found.unknown, "");
        EXPECT_EQ(found.bytes(), Volume::fmt_bytes(0, 0, meet && leader ? 32 * (G - 1) : 0));
        EXPECT_EQ(heard().messages.size(), meet && leader && G > 1 ? 1u : 0u);
        EXPECT_EQ(found.between_groups, meet && leader && G > 1);
      }
      const Recording recording(*place);
      EXPECT_FALSE(agreement.stops_after(step));
      ASSERT_EQ(heard().messages.size(), meet && G > 1 ? 1u : 0u);
      if (heard().messages.empty()) continue;
      EXPECT_EQ(heard().messages[0].comm, place->communicators.group.get());
      EXPECT_EQ(heard().messages[0].bytes, 24u);
      EXPECT_FALSE(recording.intercepted().between_groups);
    }
  }
}

/// The interception itself: it sees a message to another group, and an array over any communicator.
TEST(Traffic, SeesWhatItMust) {
  if (world_ranks() < 2 || world_ranks() % 2 != 0) GTEST_SKIP() << "needs two groups";
  const GridWithCommunicators& place = GridCache::get(MPI_COMM_WORLD, grid_of(Strategy::fl_fsdp, 0, 2));
  {
    const Recording recording(place);
    place.communicators.federation.sum(1.0);
    EXPECT_TRUE(recording.intercepted().between_groups);
    EXPECT_EQ(recording.intercepted().bytes(), Volume().bytes());
  }
  {
    const Recording recording(place);
    place.communicators.group.sum(1.0);
    EXPECT_FALSE(recording.intercepted().between_groups);
  }
  const Exec exec;
  const auto data = allocate<float>("atoll::test_array", 100);
  {
    const auto federation = make_mpi_collectives(place.communicators.federation);
    const Recording recording(place);
    federation->all_reduce(data.data(), 100, Element::f32, exec).wait();
    EXPECT_EQ(recording.intercepted().bytes(), Volume::fmt_bytes(0, 0, 400));
    EXPECT_TRUE(recording.intercepted().between_groups);
  }
  {
    const Recording recording(place);
    MPI_Allreduce(MPI_IN_PLACE, data.data(), 1, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_NE(recording.intercepted().unknown, "");
  }
}

}  // namespace
}  // namespace atl
