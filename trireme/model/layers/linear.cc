#include "trireme/model/layers/linear.h"

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/family/frozen_weights.h"
#include "trireme/model/family/init.h"

namespace trireme::model {

Linear::Linear(int64_t in, int64_t out, bool with_bias, at::ScalarType dtype) {
  weight = register_parameter("weight", new_parameter({out, in}, dtype));
  if (with_bias) bias = register_parameter("bias", new_parameter({out}, dtype));
}

void Linear::add_adapter(const AdapterConfig& lora, std::string place, const CutColumns& columns) {
  TRIREME_ASSERT(weight.defined(), "the weight was frozen before its layer got an adapter");
  const at::ScalarType dtype = weight.scalar_type();
  const auto add = [&](const char* name, int64_t in, int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, /*bias=*/false, dtype));
  };
  if (lora.dora)
    lora_magnitude = register_parameter("lora_magnitude", new_parameter({weight.size(0)}, dtype));
  lora_A = add("lora_A", weight.size(1), lora.rank);
  lora_B = add("lora_B", lora.rank, weight.size(0));
  adapter_scale_ = lora.scale();
  adapter_dropout_ = Dropout(lora.dropout, std::move(place));
  adapter_columns_ = columns;
}

void Linear::freeze_as(WeightFormat format) {
  const int64_t out = weight.size(0), in = weight.size(1);
  const auto add = [&](std::string_view name, int64_t columns, at::ScalarType dtype) {
    return register_parameter(std::string(name.substr(1)), new_parameter({out, columns}, dtype),
                              /*requires_grad=*/false);
  };
  parameters_.erase("weight");
  if (bias.defined()) parameters_.erase("bias");
  weight = at::Tensor();
  codes.format = format;
  if (has_scales(format)) {
    codes.codes = add(kWeightCodes, in / numbers_per_code(format), dtype_of_codes(format));
    codes.scales = add(kWeightScales, in / kCodesPerScale, at::kFloat);
  } else {
    codes.codes = add(".weight", in, dtype_of_codes(format));
  }
  if (bias.defined()) bias = register_parameter("bias", bias, /*requires_grad=*/false);
}

parallel::LinearWeight Linear::weights(const TokenBatch& batch) const {
  parallel::LinearWeight result{.weight = weight, .bias = bias, .codes = codes};
  if (!lora_A) return result;
  result.adapter = {lora_A->weight, lora_B->weight, adapter_scale_, {}, lora_magnitude};
  if (adapter_dropout_.drops(batch)) {
    result.adapter.drop = [this, &batch](const at::Tensor& x) {
      return adapter_dropout_.forward(x, adapter_columns_, batch);
    };
  }
  return result;
}

}  // namespace trireme::model
