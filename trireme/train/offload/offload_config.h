// Section [offload] of a config.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"

namespace trireme::train {

// Where optimizer states and fp32 weights are kept.
enum class OffloadPlace { kNone, kHost, kDisk };
inline constexpr Choice<OffloadPlace> kOffloadPlaces[] = {
    {"none", OffloadPlace::kNone}, {"host", OffloadPlace::kHost}, {"disk", OffloadPlace::kDisk}};

struct OffloadConfig {
  TRIREME_KEYS_BEGIN(OffloadConfig)
  TRIREME_KEY(OffloadPlace, optimizer, OffloadPlace::kNone, kMayChange,
              "keep optimizer states and fp32 weights with the parameters, in host memory or in "
              "files",
              kOffloadPlaces)
  TRIREME_KEY(std::string, folder, "", kMayChange,
              "disk: a folder on a fast disk; empty = in output.folder")
  TRIREME_KEY(int64_t, buffer_bytes, 64 << 20, kMayChange,
              "disk: size of each of the three buffers that states pass through",
              Range{65536, kMaxBuffer})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
