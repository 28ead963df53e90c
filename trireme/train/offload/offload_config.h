// Section [offload] of a config.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"

namespace trireme::train {

// The place of optimizer states and fp32 weights, or of activations.
enum class OffloadPlace { kNone, kHost, kDisk };
inline constexpr Choice<OffloadPlace> kOffloadPlaces[] = {
    {"none", OffloadPlace::kNone}, {"host", OffloadPlace::kHost}, {"disk", OffloadPlace::kDisk}};

struct OffloadConfig {
  TRIREME_KEYS_BEGIN(OffloadConfig)
  TRIREME_KEY(OffloadPlace, optimizer, OffloadPlace::kNone, kMayChange,
              "where to keep optimizer states and fp32 master weights; none = with the parameters, "
              "host = host memory, disk = files",
              kOffloadPlaces)
  TRIREME_KEY(
      OffloadPlace, activations, OffloadPlace::kNone, kMayChange,
      "where to keep the inputs of recomputed modules from forward to backward; none = with "
      "the parameters, host = host memory, disk = files",
      kOffloadPlaces)
  TRIREME_KEY(std::string, folder, "", kMayChange,
              "disk: folder for what is offloaded, best on a fast local disk; empty = `offload` "
              "in output.folder")
  TRIREME_KEY(int64_t, buffer_bytes, 64 << 20, kMayChange,
              "disk: size of each of a rank's three transfer buffers, in bytes",
              Range{65536, kMaxBuffer})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
