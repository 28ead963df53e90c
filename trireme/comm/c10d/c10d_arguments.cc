#include "trireme/comm/c10d/c10d_arguments.h"

#include <numeric>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"

namespace trireme::comm {
namespace {

std::vector<at::Tensor> cut(const at::Tensor& flat, std::span<const int64_t> elements) {
  std::vector<at::Tensor> blocks;
  blocks.reserve(elements.size());
  int64_t offset = 0;
  for (const int64_t count : elements) {
    blocks.push_back(flat.narrow(0, offset, count));
    offset += count;
  }
  return blocks;
}

}  // namespace

void check_sendable(const char* operation, const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.defined(), operation, ": got an undefined tensor");
  TRIREME_CHECK(tensor.is_cpu(), operation, ": got a tensor on ", tensor.device(),
                "; the trireme backend works on CPU tensors: move it with .cpu(), or use another "
                "backend for that device, as in \"cpu:trireme,cuda:nccl\"");
  TRIREME_CHECK(tensor.layout() == at::kStrided, operation, ": got a ", tensor.layout(),
                " tensor; expected a dense one: convert it with .to_dense()");
  // Their values exist only when somebody reads them; a transport copies memory.
  TRIREME_CHECK(!tensor.is_conj() && !tensor.is_neg(), operation,
                ": got a lazily conjugated or negated tensor; expected its values in memory: call "
                ".resolve_conj() or .resolve_neg()");
}

void check_sendable(const char* operation, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) check_sendable(operation, tensor);
}

const at::Tensor& only_tensor(const char* operation, const std::vector<at::Tensor>& tensors) {
  TRIREME_CHECK(tensors.size() == 1, operation, ": got ", tensors.size(),
                " tensors; expected one, as a process is one rank");
  check_sendable(operation, tensors.front());
  return tensors.front();
}

const std::vector<at::Tensor>& only_list(const char* operation,
                                         const std::vector<std::vector<at::Tensor>>& lists,
                                         int size) {
  TRIREME_CHECK(lists.size() == 1, operation, ": got ", lists.size(),
                " lists of tensors; expected one, as a process is one rank");
  TRIREME_CHECK(lists.front().size() == static_cast<size_t>(size), operation, ": got ",
                lists.front().size(), " tensors; expected one for each of ", size, " ranks");
  check_sendable(operation, lists.front());
  return lists.front();
}

at::Tensor Reduction::prepare(const at::Tensor& tensor) const {
  if (!factor) return tensor;
  TRIREME_CHECK(tensor.is_floating_point() || tensor.is_complex(),
                "premultiplied sum is not defined on ", c10::toString(tensor.scalar_type()),
                " tensors");
  const c10::NoGradGuard no_grad;
  return tensor.mul(factor->to(tensor.options()));
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return {ReduceOp::kSum, {}};
    case c10d::ReduceOp::AVG: return {ReduceOp::kAverage, {}};
    case c10d::ReduceOp::PRODUCT: return {ReduceOp::kProduct, {}};
    case c10d::ReduceOp::MIN: return {ReduceOp::kMin, {}};
    case c10d::ReduceOp::MAX: return {ReduceOp::kMax, {}};
    case c10d::ReduceOp::BAND: return {ReduceOp::kBitAnd, {}};
    case c10d::ReduceOp::BOR: return {ReduceOp::kBitOr, {}};
    case c10d::ReduceOp::BXOR: return {ReduceOp::kBitXor, {}};
    case c10d::ReduceOp::PREMUL_SUM: {
      // The name used by torch 2.11 to 2.14.
      const auto* premul = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
      TRIREME_CHECK(premul != nullptr,
                    "PREMUL_SUM has no factor; make it with "
                    "torch.distributed._make_nccl_premul_sum");
      return {ReduceOp::kSum, premul->tensor_factor.defined()
                                  ? premul->tensor_factor.reshape({})
                                  : at::scalar_tensor(premul->double_factor, at::kDouble)};
    }
    default:
      throw ConfigError(concat("reduction ", static_cast<int>(op.op_),
                               " of torch.distributed is unknown; expected SUM, AVG, PRODUCT, MIN, "
                               "MAX, BAND, BOR, BXOR or PREMUL_SUM"));
  }
}

std::vector<int64_t> block_elements(const char* operation, const at::Tensor& buffer, int parts,
                                    std::span<const int64_t> sizes) {
  const int64_t rows = buffer.dim() == 0 ? 1 : buffer.size(0);
  if (sizes.empty()) {
    TRIREME_CHECK(rows % parts == 0, operation, ": got a buffer of ", rows,
                  " rows; expected a multiple of the ", parts, " ranks, or split sizes");
    return std::vector<int64_t>(parts, buffer.numel() / parts);
  }
  TRIREME_CHECK(sizes.size() == static_cast<size_t>(parts), operation, ": got ", sizes.size(),
                " split sizes; expected one for each of ", parts, " ranks");
  TRIREME_CHECK(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}) == rows, operation,
                ": the split sizes add up to ",
                std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), "; expected the buffer's ",
                rows, " rows");
  const int64_t row_elements = rows == 0 ? 0 : buffer.numel() / rows;
  std::vector<int64_t> elements;
  for (const int64_t size : sizes) {
    TRIREME_CHECK(size >= 0, operation, ": got split size ", size, "; expected 0 or more");
    elements.push_back(size * row_elements);
  }
  return elements;
}

OutputBlocks::OutputBlocks(const at::Tensor& buffer, std::span<const int64_t> elements) {
  const c10::NoGradGuard no_grad;
  // Dense memory needs no copy, only views.
  if (buffer.is_contiguous()) {
    blocks = cut(buffer.view({-1}), elements);
    return;
  }
  const at::Tensor flat = at::empty({buffer.numel()}, buffer.options().requires_grad(false));
  blocks = cut(flat, elements);
  // The copy back waits until the call is done.
  commit = [buffer, flat] {
    const c10::NoGradGuard without_grad;
    at::Tensor(buffer).copy_(flat.view(buffer.sizes()));
  };
}

std::vector<at::Tensor> input_blocks(const at::Tensor& buffer, std::span<const int64_t> elements) {
  const c10::NoGradGuard no_grad;
  return cut(buffer.reshape({-1}), elements);
}

}  // namespace trireme::comm
