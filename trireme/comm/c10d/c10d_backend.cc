#include "trireme/comm/c10d/c10d_backend.h"

#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "trireme/base/error.h"
#include "trireme/comm/c10d/c10d_arguments.h"
#include "trireme/comm/coalesced.h"

namespace trireme::comm {

// Each call has the same parts: check what Python gave, turn its reduction into one of ours,
// describe the call for c10d, and issue it. torch.distributed allows more than our groups take:
// premultiplied sums, outputs that are not contiguous, one buffer for all ranks. These are prepared
// before the call. What has to be copied back is an epilogue, which the work runs when it settles
// and not when it is issued, because the caller may go on long before.

namespace {

int root_of(const char* operation, int64_t root_rank, int64_t root_tensor = 0) {
  TRIREME_CHECK(root_tensor == 0, operation, ": got root tensor ", root_tensor,
                "; expected 0, as a process is one rank");
  return static_cast<int>(root_rank);
}

void check_same_dtype(const char* operation, const at::Tensor& tensor,
                      const std::vector<at::Tensor>& others) {
  for (const at::Tensor& other : others) {
    TRIREME_CHECK(other.scalar_type() == tensor.scalar_type(), operation, ": got ",
                  c10::toString(tensor.scalar_type()), " and ", c10::toString(other.scalar_type()),
                  " tensors; expected one dtype");
  }
}

void check_elements(const char* operation, int64_t found, int64_t expected, const char* what) {
  TRIREME_CHECK(found == expected, operation, ": got a buffer of ", found, " elements; expected ",
                expected, ", ", what);
}

void copy_into(const at::Tensor& target, const at::Tensor& source) {
  const c10::NoGradGuard no_grad;
  at::Tensor(target).copy_(source);
}

}  // namespace

C10dBackend::Result C10dBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  const at::Tensor data = only_tensor("allreduce", tensors);
  const Reduction reduction = reduction_of(opts.reduceOp);
  const at::Tensor prepared = reduction.prepare(data);
  Call call{c10d::OpType::ALLREDUCE, "trireme:all_reduce", {data}, {data}};
  call.is_async = opts.asyncOp;
  // The caller's tensor gets the sum, although a copy was reduced.
  if (!prepared.is_same(data)) call.epilogue = [data, prepared] { copy_into(data, prepared); };
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction.operation;
  return issue(call, [&](Communicator& group) { return group.all_reduce(prepared, options); });
}

C10dBackend::Result C10dBackend::allreduce_sparse(Tensors& tensors,
                                                  const c10d::AllreduceOptions& opts) {
  TRIREME_CHECK(tensors.size() == 1, "allreduce: got ", tensors.size(), " tensors; expected one");
  const at::Tensor& data = tensors.front();
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction_of(opts.reduceOp).operation;
  // What finishes it is known only once it has started.
  const auto finish = std::make_shared<std::function<void()>>();
  Call call{c10d::OpType::_ALLREDUCE_SPARSE, "trireme:sparse_all_reduce", {data}, {data}};
  call.is_async = opts.asyncOp;
  call.epilogue = [finish] { (*finish)(); };
  return issue(call, [&](Communicator& group) {
    SparseAllReduce started = all_reduce_sparse(group, data, options);
    *finish = std::move(started.finish);
    return started.work;
  });
}

C10dBackend::Result C10dBackend::allreduce_coalesced(Tensors& tensors,
                                                     const c10d::AllreduceCoalescedOptions& opts) {
  check_sendable("allreduce_coalesced", tensors);
  const Reduction reduction = reduction_of(opts.reduceOp);
  Tensors prepared;
  for (const at::Tensor& tensor : tensors) prepared.push_back(reduction.prepare(tensor));
  Call call{c10d::OpType::ALLREDUCE_COALESCED, "trireme:all_reduce", tensors, tensors};
  call.is_async = opts.asyncOp;
  if (reduction.factor) {
    call.epilogue = [tensors, prepared] {
      for (size_t i = 0; i < tensors.size(); ++i) copy_into(tensors[i], prepared[i]);
    };
  }
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction.operation;
  return issue(call,
               [&](Communicator& group) { return all_reduce_coalesced(group, prepared, options); });
}

C10dBackend::Result C10dBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  const at::Tensor data = only_tensor("reduce", tensors);
  const int root = root_of("reduce", opts.rootRank, opts.rootTensor);
  const Reduction reduction = reduction_of(opts.reduceOp);
  const at::Tensor prepared = reduction.prepare(data);
  Call call{c10d::OpType::REDUCE, "trireme:reduce", {data}, {data}};
  call.is_async = opts.asyncOp;
  // Only the root's result counts.
  if (!prepared.is_same(data) && rank_ == root) {
    call.epilogue = [data, prepared] { copy_into(data, prepared); };
  }
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction.operation;
  return issue(call, [&](Communicator& group) { return group.reduce(prepared, root, options); });
}

C10dBackend::Result C10dBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  const at::Tensor data = only_tensor("broadcast", tensors);
  const int root = root_of("broadcast", opts.rootRank, opts.rootTensor);
  Call call{c10d::OpType::BROADCAST, "trireme:broadcast", {data}, {data}};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return group.broadcast(data, root, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& opts) {
  const at::Tensor input = only_tensor("allgather", inputs);
  const Tensors& list = only_list("allgather", outputs, size_);
  check_same_dtype("allgather", input, list);
  Call call{c10d::OpType::ALLGATHER, "trireme:all_gather", {input}, list};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return group.all_gather(list, input, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                 const c10d::AllgatherOptions& opts) {
  check_sendable("all_gather_into_tensor", {output, input});
  check_same_dtype("all_gather_into_tensor", input, {output});
  check_elements("all_gather_into_tensor", output.numel(), input.numel() * size_,
                 "the input's times the ranks");
  const OutputBlocks blocks(output, std::vector<int64_t>(size_, input.numel()));
  Call call{c10d::OpType::_ALLGATHER_BASE, "trireme:_all_gather_base", {input}, {output}};
  call.is_async = opts.asyncOp;
  call.epilogue = blocks.commit;
  return issue(call, [&](Communicator& group) {
    return group.all_gather(blocks.blocks, input, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                     const c10d::AllgatherOptions& opts) {
  TRIREME_CHECK(outputs.size() == static_cast<size_t>(size_), "allgather_coalesced: got ",
                outputs.size(), " lists; expected one for each of ", size_, " ranks");
  check_sendable("allgather_coalesced", inputs);
  TensorLists by_input(inputs.size());
  Tensors flat_outputs;
  for (const Tensors& list : outputs) {
    TRIREME_CHECK(list.size() == inputs.size(), "allgather_coalesced: got a list of ", list.size(),
                  " tensors; expected one for each of ", inputs.size(), " inputs");
    check_sendable("allgather_coalesced", list);
    for (size_t i = 0; i < list.size(); ++i) {
      check_same_dtype("allgather_coalesced", inputs[i], {list[i]});
      by_input[i].push_back(list[i]);
    }
    flat_outputs.insert(flat_outputs.end(), list.begin(), list.end());
  }
  Call call{c10d::OpType::ALLGATHER_COALESCED, "trireme:all_gather", inputs, flat_outputs};
  call.is_async = opts.asyncOp;
  return issue(call, [&](Communicator& group) {
    return all_gather_coalesced(group, by_input, inputs, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) {
  constexpr const char* kOperation = "allgather_into_tensor_coalesced";
  check_elements(kOperation, static_cast<int64_t>(outputs.size()),
                 static_cast<int64_t>(inputs.size()), "one output per input");
  check_sendable(kOperation, outputs);
  check_sendable(kOperation, inputs);
  TensorLists blocks;
  std::vector<std::function<void()>> commits;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_dtype(kOperation, inputs[i], {outputs[i]});
    check_elements(kOperation, outputs[i].numel(), inputs[i].numel() * size_,
                   "the input's times the ranks");
    OutputBlocks output(outputs[i], std::vector<int64_t>(size_, inputs[i].numel()));
    blocks.push_back(std::move(output.blocks));
    if (output.commit) commits.push_back(std::move(output.commit));
  }
  Call call{c10d::OpType::COALESCED, "trireme:_all_gather_base", inputs, outputs};
  call.is_async = opts.asyncOp;
  call.epilogue = [commits] {
    for (const auto& commit : commits) commit();
  };
  return issue(call, [&](Communicator& group) {
    return all_gather_coalesced(group, blocks, inputs, options_of(opts.timeout, opts.asyncOp));
  });
}

C10dBackend::Result C10dBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                const c10d::ReduceScatterOptions& opts) {
  const at::Tensor output = only_tensor("reduce_scatter", outputs);
  const Tensors& list = only_list("reduce_scatter", inputs, size_);
  check_same_dtype("reduce_scatter", output, list);
  const Reduction reduction = reduction_of(opts.reduceOp);
  Tensors prepared;
  for (const at::Tensor& tensor : list) prepared.push_back(reduction.prepare(tensor));
  Call call{c10d::OpType::REDUCE_SCATTER, "trireme:reduce_scatter", list, {output}};
  call.is_async = opts.asyncOp;
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction.operation;
  return issue(
      call, [&](Communicator& group) { return group.reduce_scatter(output, prepared, options); });
}

C10dBackend::Result C10dBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                      const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOperation = "reduce_scatter_tensor";
  check_sendable(kOperation, {output, input});
  check_same_dtype(kOperation, input, {output});
  check_elements(kOperation, input.numel(), output.numel() * size_, "the output's times the ranks");
  const Reduction reduction = reduction_of(opts.reduceOp);
  const Tensors blocks =
      input_blocks(reduction.prepare(input), std::vector<int64_t>(size_, output.numel()));
  Call call{c10d::OpType::_REDUCE_SCATTER_BASE, "trireme:_reduce_scatter_base", {input}, {output}};
  call.is_async = opts.asyncOp;
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction.operation;
  return issue(call,
               [&](Communicator& group) { return group.reduce_scatter(output, blocks, options); });
}

C10dBackend::Result C10dBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kOperation = "reduce_scatter_tensor_coalesced";
  check_elements(kOperation, static_cast<int64_t>(outputs.size()),
                 static_cast<int64_t>(inputs.size()), "one output per input");
  check_sendable(kOperation, outputs);
  check_sendable(kOperation, inputs);
  const Reduction reduction = reduction_of(opts.reduceOp);
  TensorLists blocks;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_same_dtype(kOperation, inputs[i], {outputs[i]});
    check_elements(kOperation, inputs[i].numel(), outputs[i].numel() * size_,
                   "the output's times the ranks");
    blocks.push_back(input_blocks(reduction.prepare(inputs[i]),
                                  std::vector<int64_t>(size_, outputs[i].numel())));
  }
  Call call{c10d::OpType::COALESCED, "trireme:_reduce_scatter_base", inputs, outputs};
  call.is_async = opts.asyncOp;
  comm::Options options = options_of(opts.timeout, opts.asyncOp);
  options.operation = reduction.operation;
  return issue(call, [&](Communicator& group) {
    return reduce_scatter_coalesced(group, outputs, blocks, options);
  });
}

}  // namespace trireme::comm
