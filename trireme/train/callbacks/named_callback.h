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

}  // namespace trireme::train
