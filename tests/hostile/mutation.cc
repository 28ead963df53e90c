#include "tests/hostile/mutation.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMaxBytes = size_t{4} << 20;
constexpr size_t kDeep = 100'000;
// Placeholders for content that a tree of values cannot hold. They are replaced when the text is
// made.
constexpr std::string_view kNested = "@nested@";
constexpr std::string_view kRawNumber = "@number@";

constexpr std::array kNumbers = {"0",
                                 "-0",
                                 "-1",
                                 "1",
                                 "0.5",
                                 "-0.0",
                                 "1.0",
                                 "1e-400",
                                 "1e308",
                                 "1e309",
                                 "-1e999",
                                 "127",
                                 "255",
                                 "256",
                                 "32768",
                                 "65536",
                                 "2147483647",
                                 "2147483648",
                                 "-2147483649",
                                 "4294967296",
                                 "9007199254740993",
                                 "4611686018427387904",
                                 "9223372036854775807",
                                 "9223372036854775808",
                                 "-9223372036854775808",
                                 "-9223372036854775809",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "99999999999999999999999999999999",
                                 "nan",
                                 "inf",
                                 "-inf",
                                 "NaN",
                                 "0x7fffffffffffffff",
                                 "1_000",
                                 "007",
                                 "1e",
                                 "--1"};

constexpr std::array kWords = {
    "true",    "false",   "null", "{}",   "[]",      "\"\"",     "''",     "[[]]", "{", "}",
    "[",       "]",       "\"",   "'",    ",",       ":",        "=",      ".",    "#", "\\",
    "\\u0000", "\\ud800", "\n",   "\r\n", "\x1b[2J", "\xff\xfe", "\"\"\"", "'''"};

std::string repeated(std::string_view text, size_t count) {
  std::string all;
  all.reserve(text.size() * count);
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The range [begin, end) of a number in the text, searched from a random place on; empty when there
// is none.
std::pair<size_t, size_t> some_number(const std::string& text, Random& random) {
  if (text.empty()) return {0, 0};
  const size_t start = random.below(text.size());
  size_t begin = text.find_first_of("0123456789", start);
  if (begin == std::string::npos) begin = text.find_first_of("0123456789");
  if (begin == std::string::npos) return {0, 0};
  size_t end = begin;
  while (end < text.size() && (is_digit(text[end]) || text[end] == '.')) ++end;
  while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  return {begin, end};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    lines.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return lines;
}

void damage_lines(std::string& text, Random& random) {
  std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) return;
  const size_t at = random.below(lines.size());
  const std::string line = lines[at];
  switch (random.below(4)) {
    case 0: lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), line); break;
    case 2: std::swap(lines[at], random.pick(lines)); break;
    default: lines[at] = repeated(line, 1 + random.below(1 + 1000000 / line.size())); break;
  }
  text.clear();
  for (const std::string& each : lines) text += each;
}

// Deeply nested brackets or keys.
std::string nesting(Random& random) {
  constexpr std::array kLevels = {
      "[", "{", "{\"a\":", "[[{\"a\":[", "a.", "{a=", "[{a.b=", "\"a\".", "[0,", "\"", "#", "[\n"};
  return repeated(random.pick(kLevels), random.one_in(2) ? kDeep : 1 + random.below(600));
}

void collect(ordered_json& value, std::vector<ordered_json*>& all) {
  all.push_back(&value);
  if (value.is_structured()) {
    for (ordered_json& part : value) collect(part, all);
  }
}

ordered_json edge_value(Random& random) {
  switch (random.below(12)) {
    case 0: return nullptr;
    case 1: return random.one_in(2);
    case 2: return "";
    case 3: return std::string(random.below(100'000), 'x');
    case 4: return ordered_json::array();
    case 5: return ordered_json::object();
    case 6: return std::string(kNested);
    case 7: return std::string(kRawNumber);
    case 8: return static_cast<double>(static_cast<int64_t>(edge_number(random))) / 3;
    case 9: return edge_number(random);
    default: return static_cast<int64_t>(edge_number(random));
  }
}

void damage_object(ordered_json& value, Random& random) {
  auto& members = value.get_ref<ordered_json::object_t&>();
  // A vector of members, so it can hold a key twice.
  using Members =
      std::vector<ordered_json::object_t::value_type, ordered_json::object_t::allocator_type>;
  auto& list = static_cast<Members&>(members);
  const size_t at = random.below(list.size());
  const auto key = list[at].first;
  const ordered_json kept = list[at].second;
  switch (random.below(5)) {
    case 0: members.erase(key); break;
    case 1: list.emplace_back(key, kept); break;
    case 2: list.emplace_back(key, edge_value(random)); break;
    case 3: list.emplace_back(key + (random.one_in(2) ? "x" : std::string("\0", 1)), kept); break;
    default: std::swap(list[at].second, list[random.below(list.size())].second); break;
  }
}

void damage_array(ordered_json& value, Random& random) {
  auto& elements = value.get_ref<ordered_json::array_t&>();
  const size_t at = random.below(elements.size());
  const ordered_json kept = elements[at];
  switch (random.below(5)) {
    case 0: elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 1: elements.push_back(kept); break;
    case 2: elements.resize(elements.size() + random.below(3000), kept); break;
    case 3: std::swap(elements[at], elements[random.below(elements.size())]); break;
    default: elements.clear(); break;
  }
}

void damage_value(ordered_json& root, Random& random) {
  std::vector<ordered_json*> all;
  collect(root, all);
  ordered_json& value = *random.pick(all);
  if (value.is_object() && !value.empty() && !random.one_in(4)) return damage_object(value, random);
  if (value.is_array() && !value.empty() && !random.one_in(4)) return damage_array(value, random);
  switch (random.below(8)) {
    case 0: {
      const ordered_json other = *random.pick(all);
      value = other;
      return;
    }
    case 1: value = ordered_json::array({ordered_json(value)}); return;
    case 2:
      if (value.is_number_integer()) {
        // Beyond the last number comes the first.
        const uint64_t step = random.one_in(2) ? 1 : ~uint64_t{0};
        value = static_cast<int64_t>(value.get<uint64_t>() + step);
        return;
      }
      [[fallthrough]];
    case 3:
      if (value.is_string()) {
        auto& text = value.get_ref<std::string&>();
        constexpr std::array kTexts = {"../../x", "/etc/passwd", "a/b", "", ".", "\n", "\x1b[2J"};
        text = random.one_in(2) ? text + "x" : random.pick(kTexts);
        return;
      }
      [[fallthrough]];
    default: value = edge_value(random);
  }
}

void replace_all(std::string& text, std::string_view mark, const std::string& with) {
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at)) {
    text.replace(at, mark.size(), with);
    at += with.size();
    if (text.size() > kMaxBytes) return;
  }
}

}  // namespace

uint64_t Random::next() {
  uint64_t z = (state_ += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t edge_number(Random& random) {
  const uint64_t power = uint64_t{1} << random.below(64);
  const uint64_t near = random.below(5) - 2;
  switch (random.below(4)) {
    case 0: return near;
    case 1: return power + near;
    case 2: return ~power + near;
    default: return random.next() >> random.below(64);
  }
}

void put_edge(std::string& bytes, size_t offset, size_t width, Random& random) {
  const uint64_t number = edge_number(random);
  if (offset + width <= bytes.size()) std::memcpy(bytes.data() + offset, &number, width);
}

void damage_bytes(std::string& bytes, Random& random) {
  for (size_t count = 1 + random.below(4); count > 0 && !bytes.empty(); --count) {
    const size_t at = random.below(bytes.size());
    const size_t length = 1 + random.below(std::min<size_t>(bytes.size() - at, 64));
    switch (random.below(9)) {
      case 0: bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8))); break;
      case 1: bytes[at] = static_cast<char>(random.next()); break;
      case 2: put_edge(bytes, at, size_t{1} << random.below(4), random); break;
      case 3: bytes.erase(at, length); break;
      case 4: bytes.insert(at, bytes.substr(at, length)); break;
      case 5: bytes.insert(at, std::string(length, static_cast<char>(random.next()))); break;
      case 6: bytes.resize(at); break;
      case 7: std::swap(bytes[at], bytes[random.below(bytes.size())]); break;
      default: bytes.replace(at, length, bytes.substr(random.below(bytes.size()), length)); break;
    }
    if (bytes.size() > kMaxBytes) bytes.resize(kMaxBytes);
  }
}

void damage_text(std::string& text, Random& random) {
  for (size_t count = 1 + random.below(3); count > 0; --count) {
    const size_t at = random.below(text.size() + 1);
    switch (random.below(6)) {
      case 0:
      case 1: {
        const auto [begin, end] = some_number(text, random);
        text.replace(begin, end - begin, random.pick(kNumbers));
        break;
      }
      case 2: text.insert(at, random.pick(kWords)); break;
      case 3: text.insert(at, nesting(random)); break;
      case 4: damage_lines(text, random); break;
      default: damage_bytes(text, random); break;
    }
    if (text.size() > kMaxBytes) text.resize(kMaxBytes);
  }
}

std::string damaged_json(const ordered_json& whole, int indent, Random& random) {
  constexpr size_t kMostBytes = size_t{8} << 20;  // larger texts are refused too, but slowly
  ordered_json value = whole;
  for (size_t count = 1 + random.below(3); count > 0; --count) damage_value(value, random);
  std::string text = value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
  replace_all(text, "\"" + std::string(kNested) + "\"", nesting(random));
  replace_all(text, "\"" + std::string(kRawNumber) + "\"", random.pick(kNumbers));
  if (random.one_in(5)) damage_text(text, random);
  return text.size() <= kMostBytes ? text : damaged_json(whole, indent, random);
}

}  // namespace trireme::hostile
