// Keys that a kind of tasks has beside those of each task. Such a task is also CommonKeys.
#pragma once

#include "trireme/train/task/keys.h"

namespace trireme::train {

class CommonKeys {
 public:
  virtual ~CommonKeys() = default;
  // Adds them to sections that every run has.
  virtual void add_common_keys(Keys& keys) = 0;
};

}  // namespace trireme::train
