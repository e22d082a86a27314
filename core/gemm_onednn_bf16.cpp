/// bf16 matrix products on the host by oneDNN's matmul primitive, made once for each shape.
/// SPDX-License-Identifier: Apache-2.0
#include "core/gemm_backends.hpp"

#include <dnnl.hpp>

#ifdef _OPENMP
#include <omp.h>
#endif

#include <map>
#include <tuple>

namespace atl {

namespace {

using DataType = dnnl::memory::data_type;

/// What a primitive is made for. It divides its work by the threads that there are when it is made.
using Key = std::tuple<bool, bool, std::size_t, std::size_t, std::size_t, std::size_t, DataType, float, int>;

struct Primitive {
  dnnl::memory::desc a, b, c;
  dnnl::matmul multiply;
};

struct Library {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Primitive> primitives;
};
Library& library() {
  static Library the;
  return the;
}

int threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

/// (rows, columns) whose stored form, transposed or not, has rows `stride` elements apart.
dnnl::memory::desc description(std::size_t rows, std::size_t columns, std::size_t stride, bool transposed,
                               DataType type) {
  const auto size = [](std::size_t n) { return static_cast<dnnl::memory::dim>(n); };
  const dnnl::memory::dims strides =
      transposed ? dnnl::memory::dims{1, size(stride)} : dnnl::memory::dims{size(stride), 1};
  return dnnl::memory::desc({size(rows), size(columns)}, type, strides);
}

Primitive make(const Library& all, bool ta, bool tb, std::size_t m, std::size_t n, std::size_t k, std::size_t a_row,
               DataType type, float beta) {
  Primitive made{description(m, k, a_row, ta, DataType::bf16), description(k, n, tb ? k : n, tb, DataType::bf16),
                 description(m, n, n, false, type), dnnl::matmul()};
  dnnl::primitive_attr attributes;
  if (beta != 0) {
    dnnl::post_ops sum;
    sum.append_sum(beta);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  made.multiply = dnnl::matmul(dnnl::matmul::primitive_desc(all.engine, made.a, made.b, made.c, attributes));
#else
  made.multiply =
      dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(made.a, made.b, made.c), attributes, all.engine));
#endif
  return made;
}

}  // namespace

bool onednn_multiplies_bf16() {
  // Sets of instructions are sets of bits: AMX contains AVX-512 with bf16.
  static const bool has =
      (static_cast<unsigned>(dnnl::get_effective_cpu_isa()) & static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16)) ==
      static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return has;
}

template <class C>
void gemm_onednn_bf16(const GemmCall<bf16, C>& call) {
  constexpr DataType type = std::is_same_v<C, bf16> ? DataType::bf16 : DataType::f32;
  const bool ta = call.a_op == Transpose::yes, tb = call.b_op == Transpose::yes;
  const Key key{ta, tb, call.m, call.n, call.k, call.a_row, type, call.beta, threads()};
  try {
    Library& all = library();
    auto found = all.primitives.find(key);
    if (found == all.primitives.end())
      found = all.primitives.emplace(key, make(all, ta, tb, call.m, call.n, call.k, call.a_row, type, call.beta)).first;
    const Primitive& made = found->second;
    // The library's interface has no pointers to const; inputs are only read.
    const dnnl::memory a(made.a, all.engine, const_cast<bf16*>(call.a)),
        b(made.b, all.engine, const_cast<bf16*>(call.b)), c(made.c, all.engine, call.c);
    made.multiply.execute(all.stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    all.stream.wait();
  } catch (const dnnl::error& error) {
    throw Error("oneDNN's matmul failed for a bf16 product of " + std::to_string(call.m) + " x " +
                std::to_string(call.k) + " x " + std::to_string(call.n) + ": " + error.what());
  }
}

template void gemm_onednn_bf16<bf16>(const GemmCall<bf16, bf16>&);
template void gemm_onednn_bf16<float>(const GemmCall<bf16, float>&);

}  // namespace atl
