/// Fuzz target: NumPy's header. SPDX-License-Identifier: Apache-2.0
#include "core/errors.hpp"
#include "io/data/token_array.hpp"
#include "tests/io/scratch_folder.hpp"

#include <cstddef>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace atl;
  static const ScratchFolder folder;
  const std::string path = folder.write("x.npy", {reinterpret_cast<const char*>(data), size});
  try {
    const ByteFile file(path);
    const ArrayPlace place = npy_array(file);
    if (place.offset + place.count * size_of(place.type) != size) std::abort();  // it says exactly what is there
    TokenArray array(path, place);
    array.scan_all();
    std::vector<std::int32_t> ids(place.count);
    array.read(0, ids);
  } catch (const DataError&) {
  }
  return 0;
}
