// The alphabet in which byte-level tokenizers spell bytes. A printable Latin-1 character stands for
// itself; the other 68 bytes are U+0100 to U+0143 in the order of their values: a space is U+0120.
// Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.2
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::dataset::inline internal {

// The character of a byte, in UTF-8.
std::string spelled_byte(uint8_t byte);

// The bytes that a text of this alphabet stands for; none when it has another character.
std::optional<std::string> spelled_bytes(std::string_view text);

}  // namespace trireme::dataset::inline internal
