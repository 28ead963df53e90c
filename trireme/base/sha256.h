// SHA-256 and HMAC-SHA-256. With them ranks prove that they know a token without sending it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

using Sha256 = std::array<uint8_t, 32>;

// Source: NIST FIPS 180-4, section 6.2
Sha256 sha256(std::string_view message);

// Source: RFC 2104
Sha256 hmac_sha256(std::string_view key, std::string_view message);

// Takes the same time wherever the two differ, so its duration reveals nothing about a secret.
bool is_same_digest(const Sha256& a, const Sha256& b);

}  // namespace trireme
