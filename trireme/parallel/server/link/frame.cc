#include "trireme/parallel/server/link/frame.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <ATen/ATen.h>

namespace trireme::parallel {

static_assert(std::endian::native == std::endian::little,
              "the numbers of frames are little-endian");

bool is_valid(const FrameHeader& header) {
  const auto kind = static_cast<uint16_t>(header.kind);
  return kind >= 1 && kind <= kNumFrameKinds && header.payload_bytes <= kMaxPayloadBytes &&
         header.base >= 0 && std::isfinite(header.learning_rate);
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? at::empty({0}, at::kByte) : tensor.reshape({-1}).view(at::kByte);
}

at::Tensor bytes_of(std::string_view text) {
  at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), text.data(), text.size());
  return bytes;
}

std::string text_of(const at::Tensor& payload) {
  if (!payload.defined()) return "";
  return {static_cast<const char*>(payload.const_data_ptr()), static_cast<size_t>(payload.numel())};
}

const char* name_of(FrameKind kind) {
  constexpr const char* kNames[] = {"beat",       "register",   "view",     "suspect", "filled",
                                    "goodbye",    "end",        "event",    "done",    "pull",
                                    "weights",    "pull state", "state",    "attach",  "have",
                                    "event done", "confirm",    "snapshot", "refused"};
  static_assert(std::size(kNames) == kNumFrameKinds);
  return kNames[static_cast<uint16_t>(kind) - 1];
}

}  // namespace trireme::parallel
