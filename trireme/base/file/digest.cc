#include "trireme/base/file/digest.h"

#include <charconv>
#include <cstdio>

#include "trireme/base/file/xxh3.h"

namespace trireme {

Digest digest_of(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Digest digest_of(std::span<const Digest> digests) { return digest_of(std::as_bytes(digests)); }

std::string to_text(const Digest& digest) {
  char digits[33];
  std::snprintf(digits, sizeof(digits), "%016llx%016llx",
                static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  return digits;
}

std::optional<Digest> parse_digest(std::string_view text) {
  if (text.size() != 32 || text.find_first_not_of("0123456789abcdef") != text.npos) return {};
  Digest digest;
  const char* const middle = &text[16];
  std::from_chars(&text[0], middle, digest.high, 16);
  std::from_chars(middle, middle + 16, digest.low, 16);
  return digest;
}

}  // namespace trireme
