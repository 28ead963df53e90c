#include "trireme/comm/store/store_table.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

using wire::Bytes;
using wire::FrameReader;
using wire::FrameWriter;
using wire::Reply;
using wire::Request;

FrameWriter reply_of(Reply reply) { return FrameWriter(static_cast<uint8_t>(reply)); }

Bytes done() { return reply_of(Reply::kDone).finish(); }
Bytes done(int64_t number) { return reply_of(Reply::kDone).number(number).finish(); }
Bytes refused(const std::string& why) { return reply_of(Reply::kRefused).text(why).finish(); }

Bytes done_or(const std::string& problem) { return problem.empty() ? done() : refused(problem); }

std::vector<std::string> read_keys(FrameReader& reader) {
  std::vector<std::string> keys;
  while (reader.ok() && !reader.at_end()) keys.push_back(reader.text());
  return keys;
}

Bytes copy_of(std::span<const uint8_t> bytes) { return {bytes.begin(), bytes.end()}; }

// Bytes counted for a key besides its letters.
// A peer could otherwise fill the memory with keys that have neither letters nor values.
constexpr size_t kKeyOverhead = 64;

}  // namespace

const Bytes* StoreTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

std::string StoreTable::store(const std::string& key, Bytes value) {
  const Bytes* const old = find(key);
  const size_t before = old == nullptr ? 0 : key.size() + kKeyOverhead + old->size();
  const size_t after = key.size() + kKeyOverhead + value.size();
  if (num_bytes_ - before + after > wire::kMaxStoreBytes) {
    return concat("the store is full: it holds ", num_bytes_, " of at most ", wire::kMaxStoreBytes,
                  " bytes");
  }
  num_bytes_ = num_bytes_ - before + after;
  values_[key] = std::move(value);
  return "";
}

// Sets all pairs, or none when the message is cut short.
Bytes StoreTable::set(FrameReader& reader) {
  std::vector<std::pair<std::string, Bytes>> pairs;
  while (reader.ok() && !reader.at_end()) {
    // In two statements: arguments are evaluated in no fixed order.
    std::string key = reader.text();
    pairs.emplace_back(std::move(key), copy_of(reader.bytes()));
  }
  if (!reader.ok()) return {};
  std::string problem;
  for (auto& [key, value] : pairs) {
    if (problem.empty()) problem = store(key, std::move(value));
  }
  return done_or(problem);
}

Bytes StoreTable::append(FrameReader& reader) {
  const std::string key = reader.text();
  const auto more = reader.bytes();
  if (!reader.ok()) return {};
  const Bytes* const old = find(key);
  Bytes value = old == nullptr ? Bytes() : *old;
  value.insert(value.end(), more.begin(), more.end());
  return done_or(store(key, std::move(value)));
}

Bytes StoreTable::add(FrameReader& reader) {
  const std::string key = reader.text();
  const int64_t amount = reader.number();
  if (!reader.ok()) return {};
  int64_t sum = 0;
  if (const Bytes* const old = find(key)) {
    const std::string text(old->begin(), old->end());
    std::from_chars(text.data(), text.data() + text.size(), sum);
  }
  // Wraps around, because a peer chooses both numbers.
  sum = static_cast<int64_t>(static_cast<uint64_t>(sum) + static_cast<uint64_t>(amount));
  const std::string text = std::to_string(sum);
  const std::string problem = store(key, Bytes(text.begin(), text.end()));
  return problem.empty() ? done(sum) : refused(problem);
}

// As in c10d::TCPStore: a missing key takes the value only if the expected value is empty.
Bytes StoreTable::compare_set(FrameReader& reader) {
  const std::string key = reader.text();
  const Bytes expected = copy_of(reader.bytes());
  const Bytes desired = copy_of(reader.bytes());
  if (!reader.ok()) return {};
  const Bytes* const old = find(key);
  const bool takes = old == nullptr ? expected.empty() : *old == expected;
  const Bytes after = takes ? desired : old == nullptr ? expected : *old;
  const std::string problem = takes ? store(key, desired) : "";
  return problem.empty() ? reply_of(Reply::kDone).bytes(after).finish() : refused(problem);
}

Bytes StoreTable::erase(FrameReader& reader) {
  const std::string key = reader.text();
  if (!reader.ok()) return {};
  const Bytes* const old = find(key);
  if (old == nullptr) return done(0);
  num_bytes_ -= key.size() + kKeyOverhead + old->size();
  values_.erase(key);
  return done(1);
}

Bytes StoreTable::check(FrameReader& reader) const {
  const std::vector<std::string> keys = read_keys(reader);
  return done(
      std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); }));
}

StoreTable::Outcome StoreTable::wait(FrameReader& reader, bool wants_values) {
  using std::chrono::milliseconds;
  const auto now = Clock::now();
  // Bounded, so that adding it to the current time does not overflow.
  const milliseconds patience(
      std::clamp<int64_t>(reader.number(), 0, milliseconds(std::chrono::hours(24 * 365)).count()));
  Waiting waiting{
      .keys = read_keys(reader), .wants_values = wants_values, .deadline = now + patience};
  if (!reader.ok()) return {};
  if (auto reply = retry(waiting, now)) return {std::move(reply), std::nullopt};
  return {std::nullopt, std::move(waiting)};
}

StoreTable::Outcome StoreTable::apply(std::span<const uint8_t> message) {
  FrameReader reader(message);
  const auto request = static_cast<Request>(reader.what());
  if (request == Request::kWait || request == Request::kGet) {
    return wait(reader, request == Request::kGet);
  }
  const auto reply = [&]() -> Bytes {
    switch (request) {
      case Request::kSet: return set(reader);
      case Request::kAppend: return append(reader);
      case Request::kAdd: return add(reader);
      case Request::kCompareSet: return compare_set(reader);
      case Request::kDelete: return erase(reader);
      case Request::kCheck: return check(reader);
      case Request::kCount: return done(static_cast<int64_t>(values_.size()));
      default: return {};
    }
  }();
  if (reply.empty() || !reader.ok() || !reader.at_end()) return {};
  return {reply, std::nullopt};
}

std::optional<Bytes> StoreTable::retry(Waiting& waiting, Clock::time_point now) {
  const auto& keys = waiting.keys;
  const auto advance = [&] {
    while (waiting.next < keys.size() && values_.contains(keys[waiting.next])) ++waiting.next;
    return waiting.next == keys.size();
  };
  if (advance()) {
    waiting.next = 0;  // one may have been deleted meanwhile
    if (advance()) return waiting.wants_values ? values_of(waiting) : done();
  }
  if (now < waiting.deadline) return std::nullopt;
  std::string missing;
  for (const std::string& key : keys) {
    // Cut, as it is for people and peers choose the keys.
    if (missing.size() < 200 && !values_.contains(key)) missing.append(" ").append(key, 0, 200);
  }
  return reply_of(Reply::kLate).text(missing).finish();
}

Bytes StoreTable::values_of(const Waiting& waiting) const {
  FrameWriter reply = reply_of(Reply::kDone);
  size_t num_bytes = 0;
  for (const std::string& key : waiting.keys) {
    const Bytes& value = values_.at(key);
    num_bytes += value.size() + sizeof(int64_t);
    if (num_bytes >= wire::kMaxFrameBytes) return refused("these values do not fit one message");
    reply.bytes(value);
  }
  return reply.finish();
}

}  // namespace trireme::comm
