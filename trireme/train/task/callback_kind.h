// A callback that programs and tasks offer by name.
#pragma once

#include <memory>
#include <span>
#include <string_view>

namespace trireme::train {

class Callback;

struct CallbackKind {
  std::string_view name;
  std::unique_ptr<Callback> (*make)();
};
using CallbackTable = std::span<const CallbackKind>;

}  // namespace trireme::train
