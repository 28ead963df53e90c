#include "trireme/train/metrics/tensorboard_events.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>
#include <string_view>

#include <unistd.h>
#include <protozero/pbf_writer.hpp>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme::train {
namespace {

// Field numbers from tensorflow/core/util/event.proto and framework/summary.proto.
enum EventTag : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5,
  kSessionLog = 7
};
enum SessionLogTag : protozero::pbf_tag_type { kStatus = 1 };
constexpr int32_t kSessionStart = 1;
enum SummaryTag : protozero::pbf_tag_type { kValue = 1 };
enum ValueTag : protozero::pbf_tag_type { kTag = 1, kSimpleValue = 2, kHistogram = 5 };
enum HistogramTag : protozero::pbf_tag_type {
  kMinimum = 1,
  kMaximum = 2,
  kNum = 3,
  kSum = 4,
  kSumSquares = 5,
  kBucketLimits = 6,
  kBuckets = 7
};

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0u);
    table[byte] = crc;
  }
  return table;
}

// TFRecord masks its CRCs, so that a CRC of data that contains CRCs stays sound.
uint32_t masked_crc(std::string_view data) {
  const uint32_t crc = crc32c(data);
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

double wall_time() { return in_seconds(std::chrono::system_clock::now().time_since_epoch()); }

// An event of the step with what `fill` puts into its summary.
template <typename Fill>
std::string event_of(int64_t step, const Fill& fill) {
  std::string record;
  protozero::pbf_writer event(record);
  event.add_double(kWallTime, wall_time());
  event.add_int64(kStep, step);
  protozero::pbf_writer summary(event, kSummary);
  fill(summary);
  summary.commit();
  return record;
}

void add_scalar(protozero::pbf_writer& summary, const Scalar& scalar) {
  protozero::pbf_writer value(summary, kValue);
  value.add_string(kTag, scalar.tag);
  value.add_float(kSimpleValue, static_cast<float>(scalar.value));
}

// For a series of empty buckets, only the last limit is written.
void add_histogram(protozero::pbf_writer& summary, const std::string& tag,
                   const Histogram& histogram) {
  std::vector<double> limits, counts;
  for (size_t i = 0; i < histogram.counts.size(); ++i) {
    if (histogram.counts[i] == 0 && !counts.empty() && counts.back() == 0) {
      limits.back() = bucket_limits()[i];
      continue;
    }
    limits.push_back(bucket_limits()[i]);
    counts.push_back(histogram.counts[i]);
  }
  protozero::pbf_writer value(summary, kValue);
  value.add_string(kTag, tag);
  protozero::pbf_writer message(value, kHistogram);
  message.add_double(kMinimum, histogram.minimum);
  message.add_double(kMaximum, histogram.maximum);
  message.add_double(kNum, histogram.num());
  message.add_double(kSum, histogram.sum);
  message.add_double(kSumSquares, histogram.sum_squares);
  message.add_packed_double(kBucketLimits, limits.begin(), limits.end());
  message.add_packed_double(kBuckets, counts.begin(), counts.end());
}

constexpr std::string_view kNamePrefix = "events.out.tfevents.";

// The time in the name of an event file, also of one that another program has written; zero when it
// has none.
std::chrono::nanoseconds time_of(std::string_view name) {
  constexpr int64_t kMostSeconds = 9'000'000'000;  // as nanoseconds they fit 64 bits
  constexpr size_t kNanosecondDigits = 9;
  const auto take_number = [&name](int64_t& number) {
    const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
    const auto num_digits = static_cast<size_t>(end - name.data());
    name.remove_prefix(num_digits);
    return code == std::errc() && name.starts_with('.') ? num_digits : 0;
  };
  if (!name.starts_with(kNamePrefix)) return {};
  name.remove_prefix(kNamePrefix.size());
  int64_t seconds = 0, nanoseconds = 0;
  if (take_number(seconds) == 0 || seconds < 0 || seconds > kMostSeconds) return {};
  name.remove_prefix(1);
  if (take_number(nanoseconds) != kNanosecondDigits || nanoseconds < 0) nanoseconds = 0;
  return std::chrono::seconds(seconds) + std::chrono::nanoseconds(nanoseconds);
}

// The clock of the host that wrote before may be ahead of this one's.
std::filesystem::path new_file(const std::filesystem::path& folder) {
  make_folders(folder);
  std::chrono::nanoseconds time = std::chrono::system_clock::now().time_since_epoch();
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    time = std::max(time, time_of(name) + std::chrono::nanoseconds(1));
  }
  return folder / event_file_name(time);
}

}  // namespace

std::string event_file_name(std::chrono::nanoseconds since_epoch) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  std::string digits = std::to_string((since_epoch - seconds).count());
  digits.insert(0, 9 - digits.size(), '0');
  return concat(kNamePrefix, seconds.count(), ".", digits, ".", getpid());
}

uint32_t crc32c(std::string_view data) {
  static constexpr auto kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char c : data) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder, int64_t first_step)
    : file_(new_file(folder)) {
  std::string record;
  protozero::pbf_writer event(record);
  event.add_double(kWallTime, wall_time());
  event.add_string(kFileVersion, "brain.Event:2");
  write_record(record);
  // A reader that has seen one of these before drops what it has from this step on.
  std::string start;
  protozero::pbf_writer session(start);
  session.add_double(kWallTime, wall_time());
  session.add_int64(kStep, first_step);
  protozero::pbf_writer log(session, kSessionLog);
  log.add_enum(kStatus, kSessionStart);
  log.commit();
  write_record(start);
}

void EventFile::write(int64_t step, std::span<const Scalar> scalars) {
  write_record(event_of(step, [&](protozero::pbf_writer& summary) {
    for (const Scalar& scalar : scalars) add_scalar(summary, scalar);
  }));
}

// A record each, which keeps records small.
void EventFile::write(int64_t step, std::span<const NamedHistogram> histograms) {
  for (const auto& [tag, histogram] : histograms) {
    if (histogram.num() == 0 && histogram.num_nonfinite == 0) continue;
    write_record(event_of(step, [&](protozero::pbf_writer& summary) {
      if (histogram.num() > 0) add_histogram(summary, tag, histogram);
      if (histogram.num_nonfinite > 0) {
        add_scalar(summary, {tag + "/nonfinite", histogram.num_nonfinite});
      }
    }));
  }
}

void EventFile::write_record(const std::string& record) {
  std::string framed(sizeof(uint64_t), '\0');
  const uint64_t length = record.size();
  std::memcpy(framed.data(), &length, sizeof(length));
  const auto append_crc = [&framed](std::string_view data) {
    const uint32_t crc = masked_crc(data);
    framed.append(reinterpret_cast<const char*>(&crc), sizeof(crc));
  };
  append_crc(framed);
  framed += record;
  append_crc(record);
  file_.write(framed);
}

}  // namespace trireme::train
