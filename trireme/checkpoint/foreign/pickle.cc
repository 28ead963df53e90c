#include "trireme/checkpoint/foreign/pickle.h"

#include <bit>
#include <limits>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/words.h"

namespace trireme::checkpoint {
namespace {

// A record of PyTorch has a handful. The bound keeps a search through them short.
constexpr size_t kMaxArguments = 64;
constexpr size_t kMaxAttributes = 64;

}  // namespace

const PickleNode& PickleValue::node() const { return pickle_->nodes_.nodes[index_]; }

int64_t PickleValue::integer(int64_t minimum, int64_t maximum) const {
  const int64_t value = node().integer;
  if (kind() != PickleKind::kInteger || value < minimum || value > maximum)
    fail(concat("an integer from ", minimum, " to ", maximum));
  return value;
}

std::string_view PickleValue::text() const {
  if (kind() != PickleKind::kText) fail(name_of(PickleKind::kText));
  return node().text;
}

std::string PickleValue::word() const {
  const std::string_view word = text();
  if (!is_printable(word) || !is_utf8(word))
    fail(concat("UTF-8 of at most ", kMaxWordBytes, " bytes without control characters"));
  return std::string(word);
}

const std::vector<uint32_t>& PickleValue::indices(PickleKind wanted) const {
  if (kind() != wanted) fail(name_of(wanted));
  return node().items;
}

std::vector<PickleValue> PickleValue::items() const {
  std::vector<PickleValue> items;
  for (const uint32_t index :
       indices(kind() == PickleKind::kList ? PickleKind::kList : PickleKind::kTuple))
    items.push_back(at(index));
  return items;
}

std::vector<PickleValue> PickleValue::items(size_t count) const {
  if (node().items.size() != count) fail(concat(count, " values"));
  return items();
}

std::vector<int64_t> PickleValue::integers(size_t max_count, int64_t minimum) const {
  // Before the vector grows.
  if (node().items.size() > max_count) fail(concat("at most ", max_count, " integers"));
  std::vector<int64_t> integers;
  for (const PickleValue& item : items()) integers.push_back(item.integer(minimum));
  return integers;
}

std::vector<std::pair<PickleValue, PickleValue>> PickleValue::members() const {
  const auto& entries = indices(PickleKind::kDict);
  std::vector<std::pair<PickleValue, PickleValue>> members;
  // Two at a time. The interpreter refuses a dict with an odd number of items.
  for (size_t i = 0; i < entries.size(); i += 2)
    members.emplace_back(at(entries[i]), at(entries[i + 1]));
  return members;
}

std::string_view PickleValue::global() const {
  if (kind() == PickleKind::kRecord) return at(node().items[0]).node().text;
  return kind() == PickleKind::kGlobal ? node().text : std::string_view();
}

std::vector<PickleValue> PickleValue::arguments(size_t min_count) const {
  const PickleValue tuple = at(indices(PickleKind::kRecord)[1]);
  const size_t count = tuple.node().items.size();
  if (count < min_count || count > kMaxArguments)
    fail(concat("an object with ", min_count, " to ", kMaxArguments, " arguments"));
  return tuple.items();
}

std::optional<PickleValue> PickleValue::state() const {
  const auto& parts = indices(PickleKind::kRecord);
  if (parts.size() < 3) return std::nullopt;
  return at(parts[2]);
}

std::optional<PickleValue> PickleValue::find_attribute(std::string_view name) const {
  const auto attributes = state();
  // A linear search is repeated for each attribute; a large dict would make it quadratic.
  if (!attributes || attributes->node().items.size() > 2 * kMaxAttributes)
    fail(concat("an object with 1 to ", kMaxAttributes, " attributes"));
  for (const auto& [key, value] : attributes->members()) {
    if (key.kind() == PickleKind::kText && key.text() == name) return value;
  }
  return std::nullopt;
}

PickleValue PickleValue::attribute(std::string_view name) const {
  const auto found = find_attribute(name);
  if (!found) fail(concat("an object with \"", name, "\""));
  return *found;
}

PickleValue PickleValue::reference() const { return at(indices(PickleKind::kPersistent)[0]); }

void PickleValue::fail(std::string_view expected) const {
  std::string found = name_of(kind());
  if (kind() == PickleKind::kText) found += " " + in_quotes(node().text);
  if (kind() == PickleKind::kInteger) found = concat("the integer ", node().integer);
  if (!global().empty()) found = global();
  throw CheckpointError(
      concat(pickle_->source_, ": byte ", node().offset, ": ", found, "; expected ", expected));
}

static_assert(std::endian::native == std::endian::little, "pickles are little-endian");

Pickler& Pickler::integer(int64_t value) {
  // The shortest form, as Python's own pickler does.
  if (value >= 0 && value <= std::numeric_limits<uint8_t>::max())
    return code('K').number(static_cast<uint8_t>(value));
  if (value >= std::numeric_limits<int32_t>::min() && value <= std::numeric_limits<int32_t>::max())
    return code('J').number(static_cast<int32_t>(value));
  return code('\x8a').number(static_cast<uint8_t>(sizeof(value))).number(value);
}

Pickler& Pickler::text(std::string_view value) {
  TRIREME_ASSERT(value.size() <= std::numeric_limits<uint32_t>::max(), "a text of ", value.size(),
                 " bytes");
  code('X').number(static_cast<uint32_t>(value.size()));
  bytes_ += value;
  return *this;
}

Pickler& Pickler::integers(std::span<const int64_t> values) {
  mark();
  for (const int64_t value : values) integer(value);
  return tuple();
}

Pickler& Pickler::global(std::string_view module, std::string_view name) {
  code('c');
  bytes_.append(module).append("\n").append(name).append("\n");
  return *this;
}

}  // namespace trireme::checkpoint
