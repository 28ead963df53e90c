#include "trireme/train/metrics/series_block.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "trireme/base/bounds.h"
#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"

namespace trireme::train {
namespace {

constexpr std::string_view kBlockMagic = "TRISERI1";
enum class BlockKind : uint32_t { kSteps = 1, kThinned = 2, kWaits = 3 };
constexpr size_t kWaitBytes = 24;
// Read at once behind damage: little at first, since most damage is short.
constexpr size_t kFirstScanBytes = 256;
constexpr size_t kMostScanBytes = size_t{1} << 16;

// As it lies in the file; all numbers are little-endian, like the processors that we run on.
struct Header {
  char magic[8] = {};
  BlockKind kind{};
  uint32_t header_checksum = 0;  // of the header, with 0 here
  uint64_t payload_bytes = 0;
  uint64_t payload_checksum = 0;
  int64_t first_step = 0;
  int64_t last_step = 0;
  int64_t epoch = 0;
  uint32_t num_rows = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(Header) == kBlockHeaderBytes);

template <typename T>
void append(std::string& bytes, const T& value) {
  bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
void append_all(std::string& bytes, const std::vector<T>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
}

void append_names(std::string& bytes, const std::vector<std::string>& names) {
  append(bytes, static_cast<uint32_t>(names.size()));
  for (const std::string& name : names) {
    append(bytes, static_cast<uint16_t>(name.size()));
    bytes += name;
  }
}

uint64_t sum_of(std::string_view bytes) { return digest_of(std::as_bytes(std::span(bytes))).low; }

uint32_t sum_of(Header header) {
  header.header_checksum = 0;
  return static_cast<uint32_t>(digest_of(std::as_bytes(std::span(&header, 1))).low);
}

std::string with_header(Header header, const std::string& payload) {
  std::ranges::copy(kBlockMagic, header.magic);
  header.payload_bytes = payload.size();
  header.payload_checksum = sum_of(payload);
  header.header_checksum = sum_of(header);
  std::string bytes;
  bytes.reserve(sizeof(header) + payload.size());
  append(bytes, header);
  return bytes += payload;
}

bool is_valid(const Header& header) {
  return std::string_view(header.magic, sizeof(header.magic)) == kBlockMagic &&
         header.header_checksum == sum_of(header) && header.payload_bytes <= kMostPayloadBytes;
}

// Where the next header is in `bytes`, or a magic number behind which they lack the rest of one;
// npos when there is neither. Looks at each byte once, however many magic numbers there are.
size_t place_of_header(std::string_view bytes) {
  size_t at = bytes.find(kBlockMagic);
  for (; at != std::string_view::npos; at = bytes.find(kBlockMagic, at + 1)) {
    if (bytes.size() - at < sizeof(Header)) break;
    Header header{};
    std::memcpy(&header, bytes.data() + at, sizeof(header));
    if (is_valid(header)) break;
  }
  return at;
}

// Takes values from a payload. A step past its end makes it fail, and stay so.
class PayloadReader {
 public:
  explicit PayloadReader(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  T take() {
    T value{};
    take_into(&value, sizeof(T));
    return value;
  }
  template <typename T>
  std::vector<T> take_all(size_t count) {
    if (count > bytes_.size() / sizeof(T)) has_failed_ = true;
    std::vector<T> values(has_failed_ ? 0 : count);
    take_into(values.data(), values.size() * sizeof(T));
    return values;
  }
  std::vector<std::string> take_names(size_t most) {
    const auto count = take<uint32_t>();
    if (count > most) has_failed_ = true;
    std::vector<std::string> names;
    for (uint32_t i = 0; i < count && !has_failed_; ++i) {
      const auto size = take<uint16_t>();
      if (size > kMostColumnBytes || size > bytes_.size()) has_failed_ = true;
      if (has_failed_) break;
      names.emplace_back(bytes_.substr(0, size));
      bytes_.remove_prefix(size);
    }
    return names;
  }
  size_t num_left() const { return bytes_.size(); }
  bool has_failed() const { return has_failed_; }
  bool is_done() const { return !has_failed_ && bytes_.empty(); }

 private:
  void take_into(void* target, size_t num_bytes) {
    if (num_bytes > bytes_.size()) has_failed_ = true;
    if (has_failed_ || num_bytes == 0) return;
    std::memcpy(target, bytes_.data(), num_bytes);
    bytes_.remove_prefix(num_bytes);
  }

  std::string_view bytes_;
  bool has_failed_ = false;
};

bool is_ascending(const std::vector<int64_t>& steps) {
  return std::ranges::adjacent_find(steps, std::greater_equal()) == steps.end();
}

std::optional<SeriesBlock> parse_steps(const Header& header, std::string_view payload) {
  if (header.num_rows == 0 || header.num_rows > kBlockSteps) return std::nullopt;
  if (header.epoch < 0) return std::nullopt;
  PayloadReader reader(payload);
  SeriesBlock block{.epoch = header.epoch, .is_thinned = header.kind == BlockKind::kThinned};
  block.shape.num_ranks = reader.take<uint32_t>();
  block.shape.columns = reader.take_names(kMostColumns);
  if (reader.has_failed() || block.shape.num_ranks < 1 || block.shape.num_ranks > kMaxRanks ||
      block.shape.columns.empty()) {
    return std::nullopt;
  }
  block.steps = reader.take_all<int64_t>(header.num_rows);
  const size_t count = header.num_rows * block.row_size();  // below 2^33
  if (reader.has_failed() || reader.num_left() != count * sizeof(float)) return std::nullopt;
  block.values = reader.take_all<float>(count);
  const bool has_steps = is_ascending(block.steps) && block.steps.front() == header.first_step &&
                         block.steps.front() >= 1 && block.steps.back() == header.last_step &&
                         block.steps.back() <= kMaxSteps;
  return reader.is_done() && has_steps ? std::optional(std::move(block)) : std::nullopt;
}

std::optional<WaitBlock> parse_waits(const Header& header, std::string_view payload) {
  if (header.num_rows == 0 || header.num_rows > kMostWaits) return std::nullopt;
  PayloadReader reader(payload);
  const std::vector<std::string> axes = reader.take_names(kMostColumns);
  if (reader.has_failed() || reader.num_left() != header.num_rows * kWaitBytes) return std::nullopt;
  WaitBlock block;
  for (uint32_t i = 0; i < header.num_rows; ++i) {
    WaitRecord record{.step = reader.take<int64_t>()};
    record.waiter = reader.take<int32_t>();
    record.awaited = reader.take<int32_t>();
    const auto axis = reader.take<uint32_t>();
    record.seconds = reader.take<float>();
    const auto is_rank = [](int32_t rank) { return rank >= 0 && rank < kMaxRanks; };
    const bool is_right = axis < axes.size() && is_rank(record.waiter) && is_rank(record.awaited) &&
                          record.step >= header.first_step && record.step <= header.last_step &&
                          record.step >= 1 && record.step <= kMaxSteps && record.seconds >= 0;
    if (!is_right) return std::nullopt;
    record.axis = axes[axis];
    block.records.push_back(std::move(record));
  }
  return block;
}

std::optional<std::variant<SeriesBlock, WaitBlock>> parse(const Header& header,
                                                          std::string_view payload) {
  if (sum_of(payload) != header.payload_checksum) return std::nullopt;
  switch (header.kind) {
    case BlockKind::kSteps:
    case BlockKind::kThinned: return parse_steps(header, payload);
    case BlockKind::kWaits: return parse_waits(header, payload);
  }
  return std::nullopt;  // of a newer version
}

}  // namespace

std::string to_bytes(const SeriesBlock& block) {
  TRIREME_ASSERT(!block.steps.empty() && block.steps.size() <= kBlockSteps &&
                     block.values.size() == block.steps.size() * block.row_size(),
                 "a series block with ", block.steps.size(), " steps and ", block.values.size(),
                 " values");
  std::string payload;
  append(payload, static_cast<uint32_t>(block.shape.num_ranks));
  append_names(payload, block.shape.columns);
  append_all(payload, block.steps);
  append_all(payload, block.values);
  return with_header({.kind = block.is_thinned ? BlockKind::kThinned : BlockKind::kSteps,
                      .first_step = block.steps.front(),
                      .last_step = block.steps.back(),
                      .epoch = block.epoch,
                      .num_rows = static_cast<uint32_t>(block.steps.size())},
                     payload);
}

std::string to_bytes(const WaitBlock& block) {
  TRIREME_ASSERT(!block.records.empty() && block.records.size() <= kMostWaits, "a block with ",
                 block.records.size(), " waits");
  std::vector<std::string> axes;
  std::string records;
  for (const WaitRecord& record : block.records) {
    const auto found = std::ranges::find(axes, record.axis);
    append(records, record.step);
    append(records, record.waiter);
    append(records, record.awaited);
    append(records, static_cast<uint32_t>(found - axes.begin()));
    append(records, record.seconds);
    if (found == axes.end()) axes.push_back(record.axis);
  }
  std::string payload;
  append_names(payload, axes);
  payload += records;
  const auto [first, last] = std::ranges::minmax(block.records, {}, &WaitRecord::step);
  return with_header({.kind = BlockKind::kWaits,
                      .first_step = first.step,
                      .last_step = last.step,
                      .num_rows = static_cast<uint32_t>(block.records.size())},
                     payload);
}

// Goes on behind damage to the next header. False at the end of the file.
bool BlockScanner::find_block() {
  ++num_dropped_;
  ++offset_;
  std::string bytes(kFirstScanBytes, '\0');
  for (; file_.num_bytes() - offset_ >= kBlockMagic.size();
       bytes.resize(std::min(2 * bytes.size(), kMostScanBytes))) {
    const size_t size = std::min<uint64_t>(bytes.size(), file_.num_bytes() - offset_);
    const auto text = std::span(bytes).first(size);
    file_.read(offset_, std::as_writable_bytes(text));
    const size_t found = place_of_header({text.data(), size});
    const bool is_none = found == std::string_view::npos;
    offset_ += is_none ? size - kBlockMagic.size() + 1 : found;
    if (is_none) continue;
    // Only what was read lacks the rest of the header, or the file does.
    const bool is_whole = size - found >= sizeof(Header);
    if (is_whole || file_.num_bytes() - offset_ < sizeof(Header)) return true;
  }
  return false;
}

std::optional<ReadBlock> BlockScanner::next() {
  std::string payload;
  while (file_.num_bytes() >= offset_ && file_.num_bytes() - offset_ >= sizeof(Header)) {
    Header header{};
    file_.read(offset_, std::as_writable_bytes(std::span(&header, 1)));
    if (!is_valid(header)) {
      if (!find_block()) break;
      continue;
    }
    if (file_.num_bytes() - offset_ - sizeof(header) < header.payload_bytes) break;
    payload.resize(header.payload_bytes);
    file_.read(offset_ + sizeof(header), std::as_writable_bytes(std::span(payload)));
    const uint64_t num_bytes = sizeof(header) + header.payload_bytes;
    offset_ += num_bytes;
    if (auto content = parse(header, payload)) return ReadBlock{std::move(*content), num_bytes};
    ++num_dropped_;
  }
  return std::nullopt;
}

}  // namespace trireme::train
