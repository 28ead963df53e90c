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
enum ValueTag : protozero::pbf_tag_type { kTag = 1, kSimpleValue = 2 };

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
  std::string record;
  protozero::pbf_writer event(record);
  event.add_double(kWallTime, wall_time());
  event.add_int64(kStep, step);
  {
    protozero::pbf_writer summary(event, kSummary);
    for (const Scalar& scalar : scalars) {
      protozero::pbf_writer value(summary, kValue);
      value.add_string(kTag, scalar.tag);
      value.add_float(kSimpleValue, static_cast<float>(scalar.value));
    }
  }
  write_record(record);
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
