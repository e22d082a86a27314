/// Encodes documents, for comparisons with other programs and for measurements. SPDX-License-Identifier: Apache-2.0
///
///     encode_documents TOKENIZER.json DOCUMENTS IDS THREADS
///
/// DOCUMENTS: for each a uint64 of its bytes, then these. IDS: for each a uint64 of its tokens, then these, as uint32.
/// Prints the seconds of encoding alone; with one thread they are the processor's, which other programs do not
/// lengthen.
#include "core/errors.hpp"
#include "io/tokenizer/tokenizer.hpp"

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <thread>

int main(int argc, char** argv) try {
  using namespace atl;
  if (argc != 5) throw ConfigError("usage: encode_documents TOKENIZER.json DOCUMENTS IDS THREADS");
  const Tokenizer tokenizer = Tokenizer::read(argv[1]);
  std::ifstream input(argv[2], std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(input), std::istreambuf_iterator<char>()};
  std::vector<std::string_view> documents;
  for (std::size_t i = 0; i < all.size();) {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, all.data() + i, sizeof bytes);
    documents.push_back(std::string_view(all).substr(i + sizeof bytes, bytes));
    i += sizeof bytes + bytes;
  }
  std::vector<std::vector<std::int32_t>> tokens(documents.size());
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t processor_start = std::clock();
  std::atomic<std::size_t> next = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < std::stoi(argv[4]); ++t) {
    threads.emplace_back([&] {
      Encoder encoder(tokenizer);
      for (std::size_t i; (i = next++) < documents.size();) encoder.append(documents[i], tokens[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double processor = static_cast<double>(std::clock() - processor_start) / CLOCKS_PER_SEC;
  std::printf("%.4f\n", threads.size() == 1 ? processor : elapsed);
  std::ofstream output(argv[3], std::ios::binary);
  for (const auto& ids : tokens) {
    const std::uint64_t count = ids.size();
    output.write(reinterpret_cast<const char*>(&count), sizeof count);
    output.write(reinterpret_cast<const char*>(ids.data()), static_cast<std::streamsize>(4 * count));
  }
  return output.flush() ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
