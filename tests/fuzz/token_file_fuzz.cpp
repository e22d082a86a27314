/// Fuzz target: HDF5 token files. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/data/token_file.hpp"
#include "tests/io/scratch_folder.hpp"

#include <algorithm>
#include <cstddef>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  static const ScratchFolder folder;
  const std::string path = folder.write("x.h5", {reinterpret_cast<const char*>(data), size});
  try {
    TokenFile file(path);
    std::vector<std::int32_t> ids(static_cast<std::size_t>(std::min<std::int64_t>(file.tokens(), 1 << 20)));
    file.read(0, ids);
    if (file.tokens() < (1 << 24) && file.documents() < (1 << 24)) file.scan_all();
  } catch (const DataError&) {
  }
  return 0;
}
