/// Fuzz target: Megatron's index. The first two bytes are the size of the file of tokens. SPDX-License-Identifier:
/// Apache-2.0
#include "core/errors.hpp"
#include "io/data/token_array.hpp"
#include "tests/io/scratch_folder.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  static const ScratchFolder folder;
  if (size < 2) return 0;
  folder.write("x.bin", std::string(static_cast<std::size_t>(data[0] + 256 * data[1]), '\1'));
  folder.write("x.idx", {reinterpret_cast<const char*>(data) + 2, size - 2});
  try {
    MegatronFile file(folder / "x");
    std::vector<std::uint64_t> offsets(static_cast<std::size_t>(file.documents()) + 1);
    file.read_offsets(0, offsets);
    file.scan_all();
    // What a scan accepts covers all tokens, document after document.
    file.read_offsets(0, offsets);
    if (offsets.front() != 0 || offsets.back() != static_cast<std::uint64_t>(file.tokens())) std::abort();
    if (!std::is_sorted(offsets.begin(), offsets.end())) std::abort();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(file.tokens()));
    file.read(0, ids);
  } catch (const DataError&) {
  }
  return 0;
}
