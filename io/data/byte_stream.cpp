/// The only file that knows zlib and libzstd. SPDX-License-Identifier: Apache-2.0
#include "io/data/byte_stream.hpp"

#include "core/errors.hpp"
#include "io/data/byte_file.hpp"
#include "io/data/text_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <vector>
#include <zlib.h>
#include <zstd.h>

namespace atl {

namespace {

/// Reads a file in pieces, each at most as large as the buffer.
class PlainStream : public ByteStream {
 public:
  explicit PlainStream(ByteFile&& file) : file_(std::move(file)) {}
  std::size_t read(std::span<char> out) override {
    const std::uint64_t bytes = std::min<std::uint64_t>(out.size(), file_.size() - at_);
    file_.read(at_, out.data(), bytes);
    at_ += bytes;
    return static_cast<std::size_t>(bytes);
  }
  std::int64_t consumed() const override { return static_cast<std::int64_t>(at_); }
  const std::string& path() const { return file_.path(); }

 private:
  ByteFile file_;
  std::uint64_t at_ = 0;
};

/// A decompressor behind a buffer of compressed bytes. Files may hold several compressed streams one after another.
class CompressedStream : public ByteStream {
 public:
  std::size_t read(std::span<char> out) override {
    std::size_t done = 0;
    while (done < out.size()) {
      if (begin_ == end_ && !ended_) {
        begin_ = 0;
        end_ = file_.read(buffer_);
        ended_ = end_ == 0;
      }
      if (ended_ && between_) break;
      const std::size_t before = done, left = end_ - begin_;
      done += decompress(std::span<const char>(buffer_).subspan(begin_, left), out.subspan(done));
      if (ended_ && done == before && !between_)
        throw DataError(fmt::format("{}: ends inside of its compressed data, at byte {}: is it cut?", file_.path(),
                                    file_.consumed()));
    }
    return done;
  }
  std::int64_t consumed() const override { return file_.consumed() - static_cast<std::int64_t>(end_ - begin_); }

 protected:
  explicit CompressedStream(PlainStream&& file) : file_(std::move(file)), buffer_(1u << 20) {}
  /// Turns some of `in` into bytes of `out`, whose number is returned; tells what it took by take().
  virtual std::size_t decompress(std::span<const char> in, std::span<char> out) = 0;
  void take(std::size_t bytes, bool between) {
    begin_ += bytes;
    between_ = between;
  }
  [[noreturn]] void corrupt(const char* reason) const {
    throw DataError(
        fmt::format("{}: its compressed data are corrupt before byte {}: {}", file_.path(), file_.consumed(), reason));
  }

 private:
  PlainStream file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of what is not decompressed yet
  bool ended_ = false;
  bool between_ = true;  // no compressed stream is open
};

class GzipStream : public CompressedStream {
 public:
  explicit GzipStream(PlainStream&& file) : CompressedStream(std::move(file)) {
    if (::inflateInit2(&state_, 16 + MAX_WBITS) != Z_OK) throw Error("zlib did not start");
  }
  ~GzipStream() override { ::inflateEnd(&state_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

 private:
  std::size_t decompress(std::span<const char> in, std::span<char> out) override {
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    state_.avail_in = static_cast<uInt>(in.size());
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(out.size(), 1u << 30));
    const std::size_t room = state_.avail_out;
    const int status = ::inflate(&state_, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      corrupt(state_.msg != nullptr ? state_.msg : "not a gzip stream");
    if (status == Z_STREAM_END) ::inflateReset(&state_);
    take(in.size() - state_.avail_in, status == Z_STREAM_END);
    return room - state_.avail_out;
  }
  ::z_stream state_{};
};

class ZstdStream : public CompressedStream {
 public:
  explicit ZstdStream(PlainStream&& file) : CompressedStream(std::move(file)), state_(::ZSTD_createDStream()) {
    if (state_ == nullptr) throw Error("libzstd did not start");
    // Archives of long windows (zstd --long=31) are common.
    ::ZSTD_DCtx_setParameter(state_, ZSTD_d_windowLogMax, 31);
  }
  ~ZstdStream() override { ::ZSTD_freeDStream(state_); }
  ZstdStream(const ZstdStream&) = delete;
  ZstdStream& operator=(const ZstdStream&) = delete;

 private:
  std::size_t decompress(std::span<const char> in, std::span<char> out) override {
    ::ZSTD_inBuffer from{in.data(), in.size(), 0};
    ::ZSTD_outBuffer to{out.data(), out.size(), 0};
    const std::size_t left = ::ZSTD_decompressStream(state_, &to, &from);
    if (::ZSTD_isError(left) != 0) corrupt(::ZSTD_getErrorName(left));
    take(from.pos, left == 0);
    return to.pos;
  }
  ::ZSTD_DStream* state_;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  ByteFile file(path);
  const std::string start = file.start(4);
  PlainStream plain(std::move(file));
  if (start.compare(0, 2, "\x1f\x8b") == 0) return std::make_unique<GzipStream>(std::move(plain));
  if (start == "\x28\xb5\x2f\xfd") return std::make_unique<ZstdStream>(std::move(plain));
  if (const auto command = decompression_command(path))
    throw DataError(fmt::format("{}: is compressed; decompress it first ({})", path, *command));
  return std::make_unique<PlainStream>(std::move(plain));
}

}  // namespace atl
