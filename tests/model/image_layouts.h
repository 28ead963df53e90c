// Layouts of the tensor and context axes for models of images.
#pragma once

#include <functional>
#include <string>

#include <ATen/Parallel.h>

#include "tests/harness/ranks.h"
#include "trireme/base/error.h"
#include "trireme/model/family/parts.h"

namespace trireme::model {

struct ImageLayout {
  int tensor = 1;
  int context = 1;
  bool sequence = false;
  parallel::ContextForm form = parallel::ContextForm::kRing;
  bool recompute = false;

  std::string text() const {
    return concat("tensor ", tensor, ", context ", context, ", sequence ", sequence, ", form ",
                  static_cast<int>(form), ", recompute ", recompute);
  }
};

// Runs `function` on each rank of the layout, with its axes.
inline void run_layout(const ImageLayout& layout,
                       const std::function<void(const ModelAxes&)>& function) {
  harness::run_ranks(layout.tensor * layout.context, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    const int rank = world.rank();
    const auto tensor = world.split(rank / layout.tensor, rank, "tensor");
    const auto context = world.split(rank % layout.tensor, rank, "context");
    function({.tensor = {.group = tensor.get(), .sequence = layout.sequence},
              .context = layout.context > 1 ? context.get() : nullptr,
              .context_form = layout.form});
  });
}

}  // namespace trireme::model
