#include "trireme/watch/serve/parameters.h"

#include <charconv>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme::watch {

std::optional<std::string> Parameters::text(std::string_view name) const {
  std::optional<std::string> value;
  for (const auto& [each, text] : pairs_) {
    if (each == name) value = text;
  }
  return value;
}

std::vector<std::string> Parameters::texts(std::string_view name) const {
  std::vector<std::string> values;
  for (const auto& [each, text] : pairs_) {
    if (each == name) values.push_back(text);
  }
  return values;
}

int64_t Parameters::whole(std::string_view name, int64_t otherwise, int64_t least,
                          int64_t most) const {
  const auto value = text(name);
  if (!value || value->empty()) return otherwise;
  int64_t number = 0;
  const char* const end = value->data() + value->size();
  const auto [last, error] = std::from_chars(value->data(), end, number);
  TRIREME_CHECK(error == std::errc() && last == end && number >= least && number <= most, name,
                " is ", shown(*value), "; expected a whole number from ", least, " to ", most);
  return number;
}

std::optional<double> Parameters::number(std::string_view name) const {
  const auto value = text(name);
  if (!value || value->empty()) return std::nullopt;
  double number = 0;
  const char* const end = value->data() + value->size();
  const auto [last, error] = std::from_chars(value->data(), end, number);
  TRIREME_CHECK(error == std::errc() && last == end && std::isfinite(number), name, " is ",
                shown(*value), "; expected a number");
  return number;
}

std::string url_text(std::string_view text) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '-' || c == '.' || c == '_' || c == '/';
    if (is_plain) {
      result += c;
    } else {
      result += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return result;
}

}  // namespace trireme::watch
