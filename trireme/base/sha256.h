// SHA-256 and HMAC-SHA-256: how ranks prove that they know a token without sending it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

using Digest = std::array<uint8_t, 32>;

// Source: NIST FIPS 180-4, section 6.2
Digest sha256(std::string_view message);

// Source: RFC 2104
Digest hmac_sha256(std::string_view key, std::string_view message);

// Takes as long wherever the two differ, so that its time tells nothing of a secret.
bool is_same_digest(const Digest& a, const Digest& b);

}  // namespace trireme
