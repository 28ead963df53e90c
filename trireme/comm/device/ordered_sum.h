// The arithmetic of reduce_kernel.h in libtorch's operators, for tensors of any device: the same
// bits, as each operator rounds once.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/comm/communicator.h"

namespace trireme::comm {

// out = operation over `inputs` in their order; 16-bit floats accumulate in fp32 and round once.
// All are flat, of one size and dtype; out may be one of the inputs.
// Throws: ConfigError for minimum and maximum of unsigned integers of more than 8 bits, which
//         libtorch cannot compare on devices
void reduce_tensors(const at::Tensor& out, const std::vector<at::Tensor>& inputs,
                    ReduceOp operation);

// Throws: ConfigError when reduce_tensors() or reduce_kernel.h refuses the pair
void check_device_reducible(c10::ScalarType dtype, ReduceOp operation);

}  // namespace trireme::comm
