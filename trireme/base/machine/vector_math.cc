#include "trireme/base/machine/vector_math.h"

#include <mutex>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

namespace trireme {

void settle_vector_math() {
  static std::once_flag once;
  std::call_once(once, [] {
    const at::NoGradGuard no_grad;
    // Those of ATen/cpu/vml.h.
    for (const auto function :
         {at::acos, at::asin, at::atan, at::cos, at::erf, at::erfc, at::erfinv, at::exp, at::log,
          at::log10, at::log2, at::sin, at::sqrt, at::tan, at::tanh, at::trunc}) {
      for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
        function(at::full({1}, 0.5, type));
      }
    }
  });
}

}  // namespace trireme
