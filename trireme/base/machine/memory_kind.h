// What memory is for. See memory_ledger.h.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class MemoryKind : uint8_t {
  kWeights,      // what a rank keeps of the parameters from step to step
  kGradients,    // what it keeps of the gradients from microbatch to microbatch
  kStates,       // optimizer states, master weights among them, and the buffers of their store
  kActivations,  // all that forward and backward make and nobody else claims
  kGathered,     // units of parameters that ZeRO-3 has gathered
  kBuckets,      // gradients on their way
  kOther
};
inline constexpr size_t kNumMemoryKinds = 7;
inline constexpr std::array<std::string_view, kNumMemoryKinds> kMemoryKinds = {
    "weights", "gradients", "states", "activations", "gathered", "buckets", "other"};

struct MemoryByKind {
  std::array<int64_t, kNumMemoryKinds> bytes{};

  int64_t& operator[](MemoryKind kind) { return bytes[static_cast<size_t>(kind)]; }
  int64_t operator[](MemoryKind kind) const { return bytes[static_cast<size_t>(kind)]; }
  int64_t total() const;
  bool operator==(const MemoryByKind&) const = default;
};

}  // namespace trireme
