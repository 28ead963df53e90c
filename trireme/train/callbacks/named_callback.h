// A callback of a config.
#pragma once

#include <string>

#include "trireme/train/callbacks/callback.h"
#include "trireme/train/task/copy_box.h"

namespace trireme::train {

struct NamedCallback {
  std::string name;
  CopyBox<Callback> callback;
};

// Whether it takes part in the run.
inline bool hears(const NamedCallback& named, const RunConfig& config) {
  return named.callback->is_on() && named.callback->concerns(config);
}

}  // namespace trireme::train
