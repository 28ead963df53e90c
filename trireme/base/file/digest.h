// A 128-bit hash (XXH3) that stands for a block of bytes. It finds damage, and two blocks with the
// same digest are taken for the same bytes: by chance, two of 10^15 blocks share one with a
// probability of 10^-9. It does not protect against someone who makes such blocks on purpose.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

struct Digest {
  uint64_t high = 0;
  uint64_t low = 0;
  auto operator<=>(const Digest&) const = default;
};

Digest digest_of(std::span<const std::byte> bytes);
// The digest of a sequence of digests.
Digest digest_of(std::span<const Digest> digests);

// 32 lower-case hexadecimal digits, and the reverse; empty for any other text.
std::string to_text(const Digest& digest);
std::optional<Digest> parse_digest(std::string_view text);

}  // namespace trireme
