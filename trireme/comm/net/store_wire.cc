#include "trireme/comm/net/store_wire.h"

#include <bit>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::comm::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the store's numbers are little-endian");

template <typename T>
std::string_view view_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

// Covers everything sent before the proof, so that no part can come from another connection.
Sha256 proof(std::string_view token, std::string_view side, const Greeting& greeting,
             const Hello& hello) {
  // The side's name, so that a proof cannot be sent back as the answer to itself.
  std::string said(side);
  said += view_of(greeting);
  said += view_of(hello).substr(0, offsetof(Hello, proof));
  return hmac_sha256(token, said);
}

}  // namespace

Sha256 client_proof(std::string_view token, const Greeting& greeting, const Hello& hello) {
  return proof(token, "client", greeting, hello);
}

Sha256 server_proof(std::string_view token, const Greeting& greeting, const Hello& hello) {
  return proof(token, "server", greeting, hello);
}

FrameWriter::FrameWriter(uint8_t what) : frame_(4) { frame_.push_back(what); }

FrameWriter& FrameWriter::number(int64_t value) {
  const auto* first = reinterpret_cast<const uint8_t*>(&value);
  frame_.insert(frame_.end(), first, first + sizeof(value));
  return *this;
}

FrameWriter& FrameWriter::bytes(std::span<const uint8_t> value) {
  number(static_cast<int64_t>(value.size()));
  frame_.insert(frame_.end(), value.begin(), value.end());
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view value) {
  return bytes({reinterpret_cast<const uint8_t*>(value.data()), value.size()});
}

const Bytes& FrameWriter::finish() {
  TRIREME_CHECK(frame_.size() - 4 <= kMaxFrameBytes, "a message of ", frame_.size() - 4,
                " bytes is too large for the store; expected at most ", kMaxFrameBytes);
  const auto length = static_cast<uint32_t>(frame_.size() - 4);
  std::memcpy(frame_.data(), &length, sizeof(length));
  return frame_;
}

std::span<const uint8_t> FrameReader::take(size_t num_bytes) {
  // After the first wrong field all are empty, so that callers need to ask ok() only once.
  ok_ = ok_ && num_bytes <= rest_.size();
  if (!ok_) rest_ = {};
  if (!ok_) return {};
  const auto taken = rest_.first(num_bytes);
  rest_ = rest_.subspan(num_bytes);
  return taken;
}

uint8_t FrameReader::what() {
  const auto byte = take(1);
  return ok_ ? byte[0] : 0;
}

int64_t FrameReader::number() {
  int64_t value = 0;
  const auto bytes = take(sizeof(value));
  if (ok_) std::memcpy(&value, bytes.data(), sizeof(value));
  return value;
}

std::span<const uint8_t> FrameReader::bytes() {
  const int64_t size = number();
  ok_ = ok_ && size >= 0;
  return take(static_cast<size_t>(size));
}

std::string FrameReader::text() {
  const auto value = bytes();
  return {value.begin(), value.end()};
}

std::optional<size_t> frame_length(std::span<const uint8_t> received) {
  uint32_t length = 0;
  if (received.size() < sizeof(length)) return std::nullopt;
  std::memcpy(&length, received.data(), sizeof(length));
  return length;
}

}  // namespace trireme::comm::wire
