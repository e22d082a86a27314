/// Lets work in the background go on between kernels. SPDX-License-Identifier: Apache-2.0
///
/// Message-passing libraries move data while somebody calls them. The thread that computes calls make_progress()
/// between kernels (core/launch) and between the parts of long matrix products (core/gemm), so that transfers go on
/// beside computation without a thread of their own. parallel/ says what there is to do.
#pragma once

namespace atl {

/// Called by make_progress(); nullptr for nothing. Must be quick where there is nothing to do.
void set_progress(void (*progress)());

/// Only from the thread that computes. Calls do not nest: what it starts may launch kernels itself.
void make_progress();

}  // namespace atl
