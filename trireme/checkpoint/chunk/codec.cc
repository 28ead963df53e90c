#include "trireme/checkpoint/chunk/codec.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "trireme/base/error.h"

#ifdef TRIREME_HAVE_ZSTD
#include <zstd.h>
#endif

namespace trireme::checkpoint {
namespace {

// A codec's name stands in every manifest and must not change.
constexpr std::array<std::pair<Codec, std::string_view>, 3> kNames{
    {{Codec::kRaw, "raw"}, {Codec::kZstd, "zstd"}, {Codec::kZstdPlanes, "zstd-planes"}}};

// Byte k of element i goes to k * n + i, and back.
void split_planes(std::span<const std::byte> in, size_t width, std::span<std::byte> out) {
  const size_t count = in.size() / width;
  for (size_t k = 0; k < width; ++k) {
    for (size_t i = 0; i < count; ++i) out[k * count + i] = in[i * width + k];
  }
}
void join_planes(std::span<const std::byte> in, size_t width, std::span<std::byte> out) {
  const size_t count = in.size() / width;
  for (size_t k = 0; k < width; ++k) {
    for (size_t i = 0; i < count; ++i) out[i * width + k] = in[k * count + i];
  }
}

#ifdef TRIREME_HAVE_ZSTD

// zstd's fastest ordinary level.
constexpr int kLevel = 1;
// Enough to tell which form is smaller, at a fraction of the cost of trying both.
constexpr size_t kSampleBytes = 64 << 10;

std::vector<std::byte> zstd(std::span<const std::byte> bytes) {
  std::vector<std::byte> out(ZSTD_compressBound(bytes.size()));
  const size_t size = ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), kLevel);
  // The bound above is zstd's own, so an error can only be a bug.
  TRIREME_ASSERT(ZSTD_isError(size) == 0, "zstd: ", ZSTD_getErrorName(size));
  out.resize(size);
  return out;
}

std::vector<std::byte> planes_of(std::span<const std::byte> bytes, size_t width) {
  std::vector<std::byte> planes(bytes.size());
  split_planes(bytes, width, planes);
  return planes;
}

bool unzstd(std::span<const std::byte> stored, std::span<std::byte> out) {
  const size_t size = ZSTD_decompress(out.data(), out.size(), stored.data(), stored.size());
  return ZSTD_isError(size) == 0 && size == out.size();
}

#else

[[noreturn]] bool unzstd(std::span<const std::byte> /*stored*/, std::span<std::byte> /*out*/) {
  throw ConfigError(
      "the checkpoint is compressed by zstd, and this program was built without it: install "
      "libzstd-dev and build again");
}

#endif

}  // namespace

std::string_view name_of(Codec codec) {
  return std::ranges::find(kNames, codec, &std::pair<Codec, std::string_view>::first)->second;
}

std::optional<Codec> parse_codec(std::string_view name) {
  const auto found = std::ranges::find(kNames, name, &std::pair<Codec, std::string_view>::second);
  if (found == kNames.end()) return std::nullopt;
  return found->first;
}

#ifdef TRIREME_HAVE_ZSTD

bool has_zstd() { return true; }

Encoded compress(std::span<const std::byte> bytes, size_t bytes_per_element) {
  const size_t width = bytes_per_element;
  // Whole elements, or the planes would be those of halves.
  const size_t sample_bytes = std::min(bytes.size(), kSampleBytes) / width * width;
  const auto sample = bytes.first(sample_bytes);
  const bool splits = width > 1 && zstd(planes_of(sample, width)).size() < zstd(sample).size();
  Encoded encoded{splits ? Codec::kZstdPlanes : Codec::kZstd,
                  zstd(splits ? std::span<const std::byte>(planes_of(bytes, width)) : bytes)};
  // Less than a thirty-second is not worth unpacking at each load.
  if (encoded.bytes.size() >= bytes.size() - bytes.size() / 32) return {};
  return encoded;
}

#else

bool has_zstd() { return false; }

Encoded compress(std::span<const std::byte> /*bytes*/, size_t /*bytes_per_element*/) {
  throw ConfigError(
      "checkpoint.compression = \"zstd\" needs a program built with zstd: install libzstd-dev and "
      "build again, or set it to \"none\"");
}

#endif

bool decode(Codec codec, std::span<const std::byte> stored, size_t bytes_per_element,
            std::span<std::byte> out) {
  if (codec == Codec::kZstd) return unzstd(stored, out);
  if (codec == Codec::kZstdPlanes) {
    // Planes need whole elements. A size that does not divide comes from a damaged or foreign file.
    std::vector<std::byte> planes(out.size());
    if (out.size() % bytes_per_element != 0 || !unzstd(stored, planes)) return false;
    join_planes(planes, bytes_per_element, out);
    return true;
  }
  if (stored.size() != out.size()) return false;
  // memcpy may not be given null pointers, which an empty span has.
  if (!out.empty()) std::memcpy(out.data(), stored.data(), out.size());
  return true;
}

}  // namespace trireme::checkpoint
