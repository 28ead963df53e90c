#include "trireme/train/metrics/event_file.h"

#include <array>
#include <chrono>
#include <cstring>

#include <unistd.h>

#include <protozero/pbf_writer.hpp>

#include "trireme/base/error.h"
#include "trireme/base/seconds.h"

namespace trireme::train {
namespace {

// Field numbers from tensorflow/core/util/event.proto and framework/summary.proto.
enum EventTag : protozero::pbf_tag_type {
  kWallTime = 1,
  kStep = 2,
  kFileVersion = 3,
  kSummary = 5
};
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

// Of a run of empty buckets only the last limit is written.
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

std::filesystem::path new_file(const std::filesystem::path& folder) {
  make_folders(folder);
  return folder / event_file_name(std::chrono::system_clock::now().time_since_epoch());
}

}  // namespace

std::string event_file_name(std::chrono::nanoseconds since_epoch) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  std::string digits = std::to_string((since_epoch - seconds).count());
  digits.insert(0, 9 - digits.size(), '0');
  return concat("events.out.tfevents.", seconds.count(), ".", digits, ".", getpid());
}

uint32_t crc32c(std::string_view data) {
  static constexpr auto kTable = make_crc_table();
  uint32_t crc = ~0u;
  for (const char c : data) crc = kTable[(crc ^ static_cast<uint8_t>(c)) & 0xFF] ^ (crc >> 8);
  return ~crc;
}

EventFile::EventFile(const std::filesystem::path& folder) : file_(new_file(folder)) {
  std::string record;
  protozero::pbf_writer event(record);
  event.add_double(kWallTime, wall_time());
  event.add_string(kFileVersion, "brain.Event:2");
  write_record(record);
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
