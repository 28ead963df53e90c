// Weights in MXFP4, the format in which GPT-OSS was published, read as bf16: blocks of 32 numbers
// of four bits, and a power of two for each.
// Source: Open Compute Project 2023, "OCP Microscaling Formats (MX) Specification", version 1.0
#pragma once

#include <filesystem>
#include <memory>

#include <ATen/core/Tensor.h>

#include "trireme/checkpoint/foreign/tensor_source.h"

namespace trireme::checkpoint {

// The numbers of stacks of matrices, transposed as transformers has them: number i of a block is
// that of the four low bits of byte i / 2, or if i is odd of its high bits, times 2^(scale - 127).
// Exact in bf16.
// Shapes: blocks [E, R, G, 16], scales [E, R, G], both uint8 and on the CPU -> [E, 32 G, R] bf16
// Throws: ConfigError when a scale is 255, which is no number
at::Tensor mxfp4_numbers(const at::Tensor& blocks, const at::Tensor& scales);

// The same tensors, with one NAME in bf16 in place of each NAME_blocks and NAME_scales. A source
// without such tensors is returned as it is. Reading one takes the memory of the tensor and of its
// blocks.
// path: for messages
// Throws: CheckpointError when one of the two is missing or their shapes or dtypes are no MXFP4;
//         reading also for a scale that is no number
std::unique_ptr<TensorSource> with_mxfp4(std::unique_ptr<TensorSource> source,
                                         const std::filesystem::path& path);

}  // namespace trireme::checkpoint
