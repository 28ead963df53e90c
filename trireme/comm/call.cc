#include "trireme/comm/call.h"

#include <c10/core/ScalarType.h>

#include "trireme/base/error.h"
#include "trireme/comm/reduce_kernel.h"
#include "trireme/comm/tensor_blocks.h"

namespace trireme::comm {

std::string to_string(const Call& call) {
  if (call.dtype < 0) return call.operation;
  std::string text =
      concat(call.operation, "(", c10::toString(static_cast<c10::ScalarType>(call.dtype)));
  if (call.elements >= 0) text += concat(", ", call.elements, " elements");
  if (call.block_sizes != 0) text += concat(" in blocks ", std::hex, call.block_sizes);
  if (call.reduce_op >= 0) text += concat(", ", name_of(static_cast<ReduceOp>(call.reduce_op)));
  if (call.root >= 0) text += concat(", root ", call.root);
  return text + ")";
}

Call call_of(const char* operation, const at::Tensor& tensor, int64_t elements, int root) {
  check_cpu_tensor(operation, tensor);
  return {operation, static_cast<int>(tensor.scalar_type()), -1, root, elements};
}

Call reduce_call(const char* operation, const at::Tensor& tensor, int64_t elements,
                 ReduceOp reduce_op, int root) {
  Call call = call_of(operation, tensor, elements, root);
  check_reducible(tensor.scalar_type(), reduce_op);
  call.reduce_op = static_cast<int>(reduce_op);
  return call;
}

Call in_blocks(Call call, const std::vector<at::Tensor>& tensors) {
  call.block_sizes = hash_of_sizes(tensors);
  return call;
}

}  // namespace trireme::comm
