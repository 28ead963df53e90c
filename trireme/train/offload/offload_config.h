// Section [offload] of a config.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/key.h"

namespace trireme::train {

// The place of what a rank does not use all the time.
enum class OffloadPlace { kNone, kHost, kDisk };
inline constexpr Choice<OffloadPlace> kOffloadPlaces[] = {
    {"none", OffloadPlace::kNone}, {"host", OffloadPlace::kHost}, {"disk", OffloadPlace::kDisk}};

struct OffloadConfig {
  TRIREME_KEYS_BEGIN(OffloadConfig)
  TRIREME_KEY(OffloadPlace, optimizer, OffloadPlace::kNone, kMayChange,
              "where to keep optimizer states and fp32 master weights; none = with the parameters, "
              "host = host memory, disk = files",
              kOffloadPlaces)
  TRIREME_KEY(OffloadPlace, parameters, OffloadPlace::kNone, kMayChange,
              "where to keep a rank's part of the weights between uses, with parallel.zero = 3; "
              "none = with the model, host = host memory of a GPU, disk = a mapped file",
              kOffloadPlaces)
  TRIREME_KEY(OffloadPlace, gradients, OffloadPlace::kNone, kMayChange,
              "where to keep a rank's part of the gradients, with parallel.zero = 2 or 3; as for "
              "parameters",
              kOffloadPlaces)
  TRIREME_KEY(
      OffloadPlace, activations, OffloadPlace::kNone, kMayChange,
      "where to keep the inputs of recomputed modules from forward to backward; none = with "
      "the parameters, host = host memory, disk = files",
      kOffloadPlaces)
  TRIREME_KEY(int64_t, activation_blocks, 0, kMayChange,
              "offload the inputs of only the first N recomputed blocks of each pipeline stage; "
              "0 = all",
              Range{0, kMaxLayers})
  TRIREME_KEY(std::string, folder, "", kMayChange,
              "disk: folder for what is offloaded, best on a fast local disk; empty = `offload` "
              "in output.folder")
  TRIREME_KEY(int64_t, buffer_bytes, 64 << 20, kMayChange,
              "disk: size of each of a rank's three transfer buffers, in bytes",
              Range{65536, kMaxBuffer})
  TRIREME_KEYS_END()
};

}  // namespace trireme::train
