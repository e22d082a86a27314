/// Uses one thing of each library of an installed atoll. SPDX-License-Identifier: Apache-2.0
#include "core/array.hpp"
#include "io/hdf5.hpp"
#include "model/llama_config.hpp"
#include "parallel/communicator.hpp"
#include "parallel/runtime.hpp"

#include <cstdio>

int main(int argc, char** argv) {
  const atl::Runtime runtime(argc, argv);
  int ranks = 0;
  MPI_Comm_size(runtime.world(), &ranks);

  // Code of the user's own on atoll's execution space.
  double sum = 0.0;
  Kokkos::parallel_reduce(
      "consumer::sum", Kokkos::RangePolicy<atl::Exec>(0, 10), KOKKOS_LAMBDA(const int i, double& s) { s += i; }, sum);
  if (sum != 45.0) return 1;

  const auto parameters = atl::parameter_count(atl::llama_preset("8b"));
  if (runtime.rank() == 0) std::printf("%d ranks, %lld parameters\n", ranks, static_cast<long long>(parameters));
  return 0;
}
