// Where a rank keeps its parts of weights or gradients between uses, if not with the parameters: on
// the host of a GPU, or on a disk. Optimizer, norm and checkpoint work on the parts where they are.
// Source: Ren et al. 2021, arXiv:2101.06840 (ZeRO-Offload); Rajbhandari et al. 2021,
//         arXiv:2104.07857 (ZeRO-Infinity)
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

namespace trireme::parallel {

// Thread safe. It outlives its tensors.
class PartMemory {
 public:
  virtual ~PartMemory() = default;

  // Shapes:  -> [elements] zeros on the CPU, readable and writable at any time
  // Throws:  ConfigError when there is no room for them
  virtual at::Tensor make(int64_t elements, at::ScalarType dtype) = 0;

  // Hints on a contiguous tensor that make() returned or a view of one. They never change a value.
  // Somebody reads it soon.
  virtual void will_need(const at::Tensor& part) = 0;
  // Nobody uses it soon.
  virtual void let_go(const at::Tensor& part) = 0;
};

// In pinned memory of the host, for the parts of a GPU. Hints do nothing.
std::shared_ptr<PartMemory> make_host_parts();

// In one unnamed file in `folder`, mapped into memory. The kernel keeps what it has room for; hints
// start reads and writes. A disk that fails raises SIGBUS.
// content: of the parts, for errors
// Throws: ConfigError when the folder cannot be written
std::shared_ptr<PartMemory> make_mapped_parts(const std::filesystem::path& folder,
                                              const std::string& content);

}  // namespace trireme::parallel
