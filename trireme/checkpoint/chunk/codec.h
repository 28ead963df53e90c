// Coding of a chunk's bytes: stored raw, or compressed by zstd, which needs the library at build
// time. Decoding does not trust its input: the result has the expected size, or decoding fails.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::checkpoint {

enum class Compression { kNone, kZstd };

enum class Codec {
  kRaw,
  kZstd,
  // The elements' first bytes, then all second ones, and so on, compressed together. Exponents of
  // neighbouring floats are alike, mantissas are not.
  kZstdPlanes,
};

// "raw", "zstd", "zstd-planes", and the reverse.
std::string_view name_of(Codec codec);
std::optional<Codec> parse_codec(std::string_view name);

// Whether this program was built with zstd.
bool has_zstd();

struct Encoded {
  Codec codec = Codec::kRaw;
  std::vector<std::byte> bytes{};  // empty for kRaw: the input as it is
};

// Chooses the smaller of both forms by a sample. Stays raw when compression saves less than a
// thirty-second.
// Throws: ConfigError without zstd
Encoded compress(std::span<const std::byte> bytes, size_t bytes_per_element);

// Fills `out`. False when `stored` does not decode to exactly out.size() bytes.
// Throws: ConfigError when `codec` needs zstd and this program was built without
bool decode(Codec codec, std::span<const std::byte> stored, size_t bytes_per_element,
            std::span<std::byte> out);
}  // namespace trireme::checkpoint
