#include "trireme/parallel/expert/grouped_linear.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"
#include "trireme/base/machine/matrix_product.h"
#include "trireme/base/numbers.h"
#include "trireme/parallel/expert/expert_replicas.h"

namespace trireme::parallel {

// A row must get the same bits however many rows its expert has, since that number depends on the
// layout. BLAS libraries break this: they choose their kernels by the sizes and the alignment of a
// product, and kernels round in other ways. So each expert's product is padded to sizes for which
// the kernel stays the same (product_sizes()), and operands that are not aligned are copied.
// Gradients of weights sum over rows and have no such freedom: they are summed per origin and then
// over the origins in order. On a device one grouped product does all experts.

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr uintptr_t kProductAlignment = 16;  // bytes, of each operand

struct GroupedCall : torch::CustomClassHolder {
  ExpertRows rows;
  std::vector<int64_t> counts;  // of experts
  GroupedOptions options;
  std::array<at::Tensor, 2> ends{};  // ends_on() the device; undefined on a host

  int64_t num_copies() const { return options.copies.empty() ? 0 : options.copies[0].size(0); }
  // The weight of an expert: of a copy, or of stack i.
  at::Tensor weight(const at::Tensor& stack, size_t i, int64_t expert) const {
    const int64_t own = expert - num_copies();
    return own < 0 ? options.copies[i].select(0, expert) : stack.select(0, own);
  }
  // The rows of the copies, and those of the stacks.
  // Copies come first in the order of rows.
  std::array<mesh::Range, 2> row_ranges() const {
    const auto end = counts.begin() + num_copies();
    const int64_t of_copies = std::reduce(counts.begin(), end);
    return {{{0, of_copies}, {of_copies, std::reduce(end, counts.end())}}};
  }
};

// Ends of the rows of each copy, and of each expert of the stacks, in their ranges.
std::array<at::Tensor, 2> ends_on(const GroupedCall& call, at::Device device) {
  const auto ends_of = [&](auto count, auto last) {
    std::vector<int32_t> ends;
    int64_t row = 0;
    for (; count != last; ++count) ends.push_back(static_cast<int32_t>(row += *count));
    return at::tensor(ends, at::kInt).to(device);
  };
  const auto middle = call.counts.begin() + call.num_copies();
  return {ends_of(call.counts.begin(), middle), ends_of(middle, call.counts.end())};
}

// Whether libtorch's grouped product takes the rows of a device and a stack of weights: not in
// fp64, and only rows of whole 16 bytes. On a host it is a loop like ours.
bool has_grouped_product(const at::Tensor& x_RD, const at::Tensor& weight_EFD) {
  const auto is_aligned = [&](int64_t length) { return length * x_RD.element_size() % 16 == 0; };
  return !x_RD.is_cpu() && x_RD.scalar_type() != at::kDouble && is_aligned(weight_EFD.size(1)) &&
         is_aligned(weight_EFD.size(2));
}

// The rows times W^T of their experts, or times W, in one call for the copies and one for the rest.
at::Tensor grouped_products(const GroupedCall& call, const at::Tensor& rows,
                            const at::Tensor& weight_EFD, size_t i, bool transposes) {
  std::vector<at::Tensor> parts;
  const std::array<mesh::Range, 2> ranges = call.row_ranges();
  for (const bool of_copies : {true, false}) {
    if (of_copies && call.num_copies() == 0) continue;
    const mesh::Range& range = ranges[of_copies ? 0 : 1];
    const at::Tensor& stack = of_copies ? call.options.copies[i] : weight_EFD;
    parts.push_back(at::_grouped_mm(rows.narrow(0, range.offset, range.size),
                                    transposes ? stack.transpose(1, 2) : stack,
                                    call.ends[of_copies ? 0 : 1]));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

// The gradient of the copies or of the stack.
at::Tensor grouped_gradient(const GroupedCall& call, const at::Tensor& grad_RF,
                            const at::Tensor& x_RD, bool of_copies) {
  const size_t part = of_copies ? 0 : 1;
  const mesh::Range range = call.row_ranges()[part];
  const at::Tensor& ends = call.ends[part];
  at::Tensor gradient = at::_grouped_mm(grad_RF.narrow(0, range.offset, range.size).t(),
                                        x_RD.narrow(0, range.offset, range.size), ends);
  // For an expert without rows, the kernel may write anything, and the gradient is zero.
  const at::Tensor has_rows = at::diff(ends, 1, 0, at::zeros({1}, ends.options())).gt(0);
  return at::where(has_rows.view({-1, 1, 1}), gradient, 0);
}

// Calls use(expert, first row, number of rows) for each expert that has rows.
template <typename Use>
void for_each_expert(std::span<const int64_t> counts, const Use& use) {
  int64_t first = 0;
  for (size_t e = 0; e < counts.size(); ++e) {
    if (counts[e] > 0) use(static_cast<int64_t>(e), first, counts[e]);
    first += counts[e];
  }
}

// `tensor` in the corner of zeros of that size, with its order of strides.
at::Tensor pad(const at::Tensor& tensor, int64_t rows, int64_t columns) {
  // A transposed operand must stay one: its kernel is another.
  const bool is_row_major = tensor.stride(1) == 1 || tensor.size(1) == 1;
  const at::Tensor padded = is_row_major ? at::zeros({rows, columns}, tensor.options())
                                         : at::zeros({columns, rows}, tensor.options()).t();
  padded.narrow(0, 0, tensor.size(0)).narrow(1, 0, tensor.size(1)).copy_(tensor);
  return padded;
}

// out = x w, or added to out, as a product of the sizes and alignment that product_sizes() wants.
void multiply_padded(at::Tensor out, const at::Tensor& x, const at::Tensor& w, bool adds) {
  const auto fits = [](const at::Tensor& tensor, int64_t rows, int64_t columns) {
    const auto address = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
    return tensor.size(0) == rows && tensor.size(1) == columns && address % kProductAlignment == 0;
  };
  const ProductSizes sizes = product_sizes(x.size(0), x.size(1), w.size(1), x.scalar_type());
  const auto& [rows, inner, columns] = sizes;
  if (!x.is_cpu() ||
      (fits(x, rows, inner) && fits(w, inner, columns) && fits(out, rows, columns))) {
    multiply(out, x, w, adds ? 1 : 0);
    return;
  }
  // Only what does not fit is copied.
  const at::Tensor own_x = fits(x, rows, inner) ? x : pad(x, rows, inner);
  const at::Tensor own_w = fits(w, inner, columns) ? w : pad(w, inner, columns);
  // What is added to has to be padded with it.
  const at::Tensor product =
      adds ? pad(out, rows, columns) : at::empty({rows, columns}, out.options());
  multiply(product, own_x, own_w, adds ? 1 : 0);
  out.copy_(product.narrow(0, 0, out.size(0)).narrow(1, 0, out.size(1)));
}

// The gradient of a stack of weights.
at::Tensor weight_gradient(const at::Tensor& weight_EFD, const at::Tensor& grad_RF,
                           const at::Tensor& x_RD, const GroupedCall& call) {
  const int64_t num_copies = call.num_copies(), origins = call.rows.origins;
  if (has_grouped_product(x_RD, weight_EFD)) {
    const at::Tensor gradient = grouped_gradient(call, grad_RF, x_RD, /*of_copies=*/false);
    if (num_copies > 0) {
      call.options.replicas->sum_gradients(grouped_gradient(call, grad_RF, x_RD, true), gradient);
    }
    return gradient;
  }
  const at::Tensor result = at::empty_like(weight_EFD);
  const at::Tensor of_copies =
      at::empty({num_copies, weight_EFD.size(1), weight_EFD.size(2)}, weight_EFD.options());
  at::Tensor scratch;
  int64_t row = 0;
  for (int64_t e = 0; e < std::ssize(call.counts); ++e) {
    std::vector<mesh::Range> parts;  // rows from each rank that sent some
    for (int64_t origin = 0; origin < origins; ++origin) {
      const int64_t num = call.rows.counts[static_cast<size_t>(e * origins + origin)];
      if (num > 0) parts.push_back({row, num});
      row += num;
    }
    sum_in_order(e < num_copies ? of_copies.select(0, e) : result.select(0, e - num_copies),
                 std::ssize(parts), scratch, [&](int64_t i, at::Tensor buffer) {
                   const auto [first, num] = parts[static_cast<size_t>(i)];
                   weight_product_out(buffer, grad_RF.narrow(0, first, num),
                                      x_RD.narrow(0, first, num));
                   return buffer;
                 });
  }
  if (num_copies > 0) call.options.replicas->sum_gradients(of_copies, result);
  return result;
}

// tensors: x, then the stacks of weights.
class GroupedLinearFunction : public torch::autograd::Function<GroupedLinearFunction> {
 public:
  static variable_list forward(AutogradContext* ctx, const c10::intrusive_ptr<GroupedCall>& call,
                               // One function for all stacks: the gradient of x is then one sum.
                               at::TensorList tensors) {
    const at::Tensor& x_RD = tensors[0];
    variable_list outputs;
    for (size_t i = 0; i + 1 < tensors.size(); ++i) {
      const at::Tensor& weight_EFD = tensors[i + 1];
      if (has_grouped_product(x_RD, weight_EFD)) {
        outputs.push_back(grouped_products(*call, x_RD, weight_EFD, i, /*transposes=*/true));
        continue;
      }
      outputs.push_back(at::empty({x_RD.size(0), weight_EFD.size(1)}, x_RD.options()));
      for_each_expert(call->counts, [&](int64_t e, int64_t first, int64_t num) {
        multiply_padded(outputs.back().narrow(0, first, num), x_RD.narrow(0, first, num),
                        call->weight(weight_EFD, i, e).t(), /*adds=*/false);
      });
    }
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    ctx->save_for_backward(tensors.vec());
    // A stack without a use costs no zeros.
    ctx->set_materialize_grads(false);
    return outputs;
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<GroupedCall>(ctx->saved_data["call"].toCapsule());
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x_RD = saved[0];
    for (at::Tensor& grad : grads) {
      if (grad.defined()) grad = grad.contiguous();
    }
    variable_list result(2);  // of the call, which needs_input_grad() does not count, and x
    if (ctx->needs_input_grad(0)) result[1] = input_gradient(*call, saved, grads);
    for (size_t i = 0; i < grads.size(); ++i) {
      const at::Tensor& weight = saved[i + 1];
      const at::Tensor& grad = grads[i];
      result.emplace_back();
      // Deferred gradients are computed in the weight part of a split backward.
      if (!grad.defined() || !ctx->needs_input_grad(i + 1)) continue;
      const auto compute = [like = weight.detach(), grad, x = x_RD.detach(), call] {
        return weight_gradient(like, grad, x, *call);
      };
      const DeferGradient& defer = call->options.defer;
      if (!defer || !defer(weight, compute)) result.back() = compute();
    }
    return result;
  }

 private:
  static at::Tensor input_gradient(const GroupedCall& call, const variable_list& saved,
                                   const variable_list& grads) {
    at::Tensor grad_x = at::empty_like(saved[0]);
    bool adds = false;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (!grads[i].defined()) continue;
      if (has_grouped_product(saved[0], saved[i + 1])) {
        const at::Tensor term = grouped_products(call, grads[i], saved[i + 1], i, false);
        grad_x = adds ? grad_x.add_(term) : term;
        adds = true;
        continue;
      }
      for_each_expert(call.counts, [&](int64_t e, int64_t first, int64_t num) {
        multiply_padded(grad_x.narrow(0, first, num), grads[i].narrow(0, first, num),
                        call.weight(saved[i + 1], i, e), adds);
      });
      adds = true;
    }
    return adds ? grad_x : grad_x.zero_();
  }
};

}  // namespace

ProductSizes product_sizes(int64_t rows, int64_t inner, int64_t columns, at::ScalarType dtype) {
  const bool is_double = dtype == at::kDouble;
  const auto rounded = [](int64_t length, int64_t unit) {
    return static_cast<int64_t>(round_up(static_cast<size_t>(length), static_cast<size_t>(unit)));
  };
  const auto width = [&](int64_t length) {
    return is_double || length < 64 ? rounded(length, 4) : length;
  };
  return {is_double ? std::max<int64_t>(rounded(rows, 8), 192) : std::max<int64_t>(rows, 32),
          width(inner), width(columns)};
}

std::vector<at::Tensor> grouped_linear(const at::Tensor& x_RD,
                                       const std::vector<at::Tensor>& weights,
                                       const ExpertRows& rows, const GroupedOptions& options) {
  auto call = c10::make_intrusive<GroupedCall>();
  call->rows = rows;
  call->counts = rows.of_experts();
  call->options = options;
  TRIREME_ASSERT(std::reduce(rows.counts.begin(), rows.counts.end()) == x_RD.size(0) &&
                     std::ssize(call->counts) == call->num_copies() + weights.at(0).size(0),
                 "rows of shape ", x_RD.sizes(), " of ", call->num_copies(),
                 " copies and weights of shape ", weights.at(0).sizes(), " for counts ",
                 at::IntArrayRef(call->counts));
  if (!x_RD.is_cpu()) call->ends = ends_on(*call, x_RD.device());
  std::vector<at::Tensor> tensors{x_RD.contiguous()};
  tensors.insert(tensors.end(), weights.begin(), weights.end());
  return GroupedLinearFunction::apply(call, at::TensorList(tensors));
}

}  // namespace trireme::parallel
