#include "trireme/dataset/file/compressed_text.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_ZLIB
#include <zlib.h>
#endif
#ifdef TRIREME_HAVE_ZSTD
#include <zstd.h>
#include <zstd_errors.h>
#endif

namespace trireme::dataset {

class CompressedText::Unpacker {
 public:
  virtual ~Unpacker() = default;
  // Takes bytes from the front of `packed` and writes to the front of `out`; both become what is
  // left of them. Returns what is wrong, or "".
  virtual std::string unpack(std::span<const std::byte>& packed, std::span<char>& out) = 0;
  bool is_within_part() const { return is_within_part_; }

 protected:
  bool is_within_part_ = false;
};

#ifdef TRIREME_HAVE_ZLIB

class CompressedText::Gzip : public Unpacker {
 public:
  Gzip() {
    constexpr int kGzipOnly = 16;
    if (inflateInit2(&state_, MAX_WBITS + kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~Gzip() override { inflateEnd(&state_); }
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  std::string unpack(std::span<const std::byte>& packed, std::span<char>& out) override {
    constexpr size_t kMost = std::numeric_limits<uInt>::max();
    // zlib's interface predates const.
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data()));
    state_.avail_in = static_cast<uInt>(std::min(packed.size(), kMost));
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out = static_cast<uInt>(std::min(out.size(), kMost));
    const uInt in = state_.avail_in, room = state_.avail_out;
    if (in > 0) is_within_part_ = true;
    const int code = inflate(&state_, Z_NO_FLUSH);
    packed = packed.subspan(in - state_.avail_in);
    out = out.subspan(room - state_.avail_out);
    if (code == Z_STREAM_END) {
      is_within_part_ = false;
      inflateReset(&state_);
      return "";
    }
    if (code == Z_OK || code == Z_BUF_ERROR) return "";
    return state_.msg != nullptr ? state_.msg : "zlib cannot read it";
  }

 private:
  z_stream state_{};
};

#endif

#ifdef TRIREME_HAVE_ZSTD

class CompressedText::Zstd : public Unpacker {
 public:
  Zstd() : context_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {
    if (context_ == nullptr) throw std::bad_alloc();
    constexpr int kLogOfMaxWindow = 27;
    static_assert(size_t{1} << kLogOfMaxWindow == kMaxZstdWindowBytes);
    ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kLogOfMaxWindow);
  }

  std::string unpack(std::span<const std::byte>& packed, std::span<char>& out) override {
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    ZSTD_outBuffer text{out.data(), out.size(), 0};
    const size_t code = ZSTD_decompressStream(context_.get(), &text, &in);
    if (ZSTD_isError(code) != 0) {
      if (ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge) {
        return concat("its window has more than ", kMaxZstdWindowBytes >> 20,
                      " MiB; compress it with zstd --long=27 or less");
      }
      return ZSTD_getErrorName(code);
    }
    packed = packed.subspan(in.pos);
    out = out.subspan(text.pos);
    if (in.pos > 0 || text.pos > 0) is_within_part_ = code != 0;
    return "";
  }

 private:
  std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> context_;
};

#endif

bool reads_compression([[maybe_unused]] std::string_view name) {
#ifdef TRIREME_HAVE_ZLIB
  if (name == "gzip") return true;
#endif
#ifdef TRIREME_HAVE_ZSTD
  if (name == "zstd") return true;
#endif
  return false;
}

std::string readable_compressions() {
  std::string names;
  for (const std::string_view name : {"gzip", "zstd"}) {
    if (reads_compression(name)) names += concat(names.empty() ? "" : " or ", name);
  }
  return names;
}

CompressedText::CompressedText(std::string_view compression, std::string path, Source source)
    : path_(std::move(path)), source_(std::move(source)) {
#ifdef TRIREME_HAVE_ZLIB
  if (compression == "gzip") unpacker_ = std::make_unique<Gzip>();
#endif
#ifdef TRIREME_HAVE_ZSTD
  if (compression == "zstd") unpacker_ = std::make_unique<Zstd>();
#endif
  TRIREME_ASSERT(unpacker_ != nullptr, "this build reads no ", compression);
}

CompressedText::~CompressedText() = default;

size_t CompressedText::read(std::span<char> out) {
  const size_t wanted = out.size();
  while (!out.empty() && !is_at_end_) {
    if (packed_.empty()) packed_ = std::span(piece_).first(source_(piece_));
    const bool is_last = packed_.empty();
    const size_t room = out.size();
    // Also without more of the file: zstd may still have text that found no room.
    const std::string problem = unpacker_->unpack(packed_, out);
    TRIREME_CHECK(problem.empty(), path_, " is damaged: ", problem);
    is_at_end_ = is_last && out.size() == room;
  }
  TRIREME_CHECK(!is_at_end_ || !unpacker_->is_within_part(), path_,
                " ends in the middle of its compressed text; is it complete?");
  return wanted - out.size();
}

}  // namespace trireme::dataset
