#include "trireme/parallel/expert/row_exchange.h"

#include <numeric>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>

#include "trireme/base/error.h"

namespace trireme::parallel {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using Plan = RowExchange::Plan;

int64_t sum_of(const std::vector<int64_t>& counts) {
  return std::reduce(counts.begin(), counts.end());
}

// Sends `sent[r]` of the rows to rank r, and returns the `received[r]` rows of each rank r.
at::Tensor exchange(const at::Tensor& rows, const std::vector<int64_t>& sent,
                    const std::vector<int64_t>& received, const ExpertAxis& axis) {
  const at::Tensor result = at::empty({sum_of(received), rows.size(1)}, rows.options());
  const auto start = std::chrono::steady_clock::now();
  axis.group->all_to_all(result.split_with_sizes(received), rows.split_with_sizes(sent))->wait();
  if (axis.waiting) *axis.waiting += std::chrono::steady_clock::now() - start;
  return result;
}

at::Tensor gather_for_experts(const at::Tensor& rows, const Plan& plan) {
  return exchange(rows, plan.sent, plan.received, plan.axis).index_select(0, plan.order);
}

at::Tensor send_back(const at::Tensor& rows, const Plan& plan) {
  return exchange(rows.index_select(0, plan.reverse), plan.received, plan.sent, plan.axis);
}

struct ExchangeCall : torch::CustomClassHolder {
  std::shared_ptr<const Plan> plan;
  bool to_experts = true;
};

class ExchangeFunction : public torch::autograd::Function<ExchangeFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const c10::intrusive_ptr<ExchangeCall>& call) {
    ctx->saved_data["call"] = c10::IValue::make_capsule(call);
    return call->to_experts ? gather_for_experts(rows, *call->plan) : send_back(rows, *call->plan);
  }

  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<ExchangeCall>(ctx->saved_data["call"].toCapsule());
    const at::Tensor grad = grads[0].contiguous();
    return {call->to_experts ? send_back(grad, *call->plan) : gather_for_experts(grad, *call->plan),
            at::Tensor()};
  }
};

at::Tensor run_exchange(const at::Tensor& rows, const std::shared_ptr<const Plan>& plan,
                        bool to_experts) {
  auto call = c10::make_intrusive<ExchangeCall>();
  call->plan = plan;
  call->to_experts = to_experts;
  return ExchangeFunction::apply(rows.contiguous(), call);
}

}  // namespace

// Rows on their way in the background, in forward and then in backward.
struct RowTransfer {
  std::shared_ptr<const Plan> plan;
  at::Tensor sent{};  // must live until they have arrived
  at::Tensor arriving{};
  comm::WorkPtr work{};

  // `received[r]` rows of each rank r will come.
  void start(const at::Tensor& rows, const std::vector<int64_t>& counts,
             const std::vector<int64_t>& received) {
    arriving = at::empty({sum_of(received), rows.size(1)}, rows.options());
    sent = rows;
    work = plan->axis.group->all_to_all(arriving.split_with_sizes(received),
                                        rows.split_with_sizes(counts), {.background = true});
  }
  // Waits, and returns them.
  at::Tensor finish() {
    const auto start = std::chrono::steady_clock::now();
    work->wait();
    if (plan->axis.waiting) *plan->axis.waiting += std::chrono::steady_clock::now() - start;
    work.reset();
    sent.reset();
    return std::exchange(arriving, {});
  }
};

namespace {

struct TransferHolder : torch::CustomClassHolder {
  explicit TransferHolder(std::shared_ptr<RowTransfer> transfer) : transfer(std::move(transfer)) {}
  std::shared_ptr<RowTransfer> transfer;
};

RowTransfer& transfer_of(AutogradContext* ctx) {
  return *c10::static_intrusive_pointer_cast<TransferHolder>(
              ctx->saved_data["transfer"].toCapsule())
              ->transfer;
}

class StartFunction : public torch::autograd::Function<StartFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& rows,
                            const c10::intrusive_ptr<TransferHolder>& holder) {
    ctx->saved_data["transfer"] = c10::IValue::make_capsule(holder);
    RowTransfer& transfer = *holder->transfer;
    transfer.start(rows, transfer.plan->sent, transfer.plan->received);
    return transfer.arriving.view_as(transfer.arriving);
  }
  static variable_list backward(AutogradContext* ctx, variable_list /*grads*/) {
    return {transfer_of(ctx).finish(), at::Tensor()};
  }
};

class FinishFunction : public torch::autograd::Function<FinishFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*arriving*/,
                            const c10::intrusive_ptr<TransferHolder>& holder) {
    ctx->saved_data["transfer"] = c10::IValue::make_capsule(holder);
    return holder->transfer->finish().index_select(0, holder->transfer->plan->order);
  }
  // StartFunction's waits for what this one starts. What it is handed has the right shape and no
  // memory.
  static variable_list backward(AutogradContext* ctx, variable_list grads) {
    RowTransfer& transfer = transfer_of(ctx);
    const Plan& plan = *transfer.plan;
    const at::Tensor& grad = grads[0];
    transfer.start(grad.contiguous().index_select(0, plan.reverse), plan.received, plan.sent);
    return {at::zeros({1, 1}, grad.options()).expand_as(grad), at::Tensor()};
  }
};

// received[r][i]: rows of rank r for this rank's expert i. They arrive rank by rank, each rank's by
// expert.
void order_received(const std::vector<std::vector<int64_t>>& received, Plan& plan) {
  std::vector<std::vector<int64_t>> first(received.size());
  int64_t place = 0;
  for (size_t r = 0; r < received.size(); ++r) {
    for (const int64_t count : received[r]) {
      first[r].push_back(place);
      place += count;
    }
  }
  plan.order = at::empty({place}, at::kLong);
  plan.reverse = at::empty({place}, at::kLong);
  auto* const order = plan.order.mutable_data_ptr<int64_t>();
  auto* const reverse = plan.reverse.mutable_data_ptr<int64_t>();
  int64_t row = 0;
  for (size_t i = 0; i < plan.counts.size(); ++i) {
    for (size_t r = 0; r < received.size(); ++r) {
      for (int64_t j = 0; j < received[r][i]; ++j, ++row) {
        order[row] = first[r][i] + j;
        reverse[first[r][i] + j] = row;
      }
    }
  }
}

}  // namespace

RowExchange::RowExchange(std::span<const int64_t> counts, const ExpertAxis& axis) {
  auto plan = std::make_shared<Plan>();
  plan->axis = axis;
  const auto num_experts = static_cast<int64_t>(counts.size());
  const auto p = static_cast<size_t>(axis.size());
  if (p == 1) {
    plan->counts.assign(counts.begin(), counts.end());
    plan_ = std::move(plan);
    return;
  }
  const at::Tensor mine = at::tensor(at::IntArrayRef(counts.data(), counts.size()), at::kLong);
  const int64_t num_own = axis.experts_of(num_experts, axis.rank()).size;
  const at::Tensor theirs = at::empty({axis.size(), num_own}, at::kLong);
  std::vector<at::Tensor> inputs;
  for (int r = 0; r < axis.size(); ++r) {
    const mesh::Range experts = axis.experts_of(num_experts, r);
    inputs.push_back(mine.narrow(0, experts.offset, experts.size));
    plan->sent.push_back(inputs.back().sum().item<int64_t>());
  }
  const auto start = std::chrono::steady_clock::now();
  axis.group->all_to_all(theirs.unbind(0), inputs)->wait();
  if (axis.waiting) *axis.waiting += std::chrono::steady_clock::now() - start;
  std::vector<std::vector<int64_t>> received(p);
  plan->counts.assign(static_cast<size_t>(num_own), 0);
  for (size_t r = 0; r < p; ++r) {
    const auto* const row = theirs.const_data_ptr<int64_t>() + static_cast<int64_t>(r) * num_own;
    received[r].assign(row, row + num_own);
    plan->received.push_back(sum_of(received[r]));
    for (size_t i = 0; i < received[r].size(); ++i) plan->counts[i] += received[r][i];
  }
  order_received(received, *plan);
  plan_ = std::move(plan);
}

at::Tensor RowExchange::to_experts(const at::Tensor& rows_RD) const {
  return plan_->axis.size() == 1 ? rows_RD : run_exchange(rows_RD, plan_, /*to_experts=*/true);
}

RowExchange::Arriving RowExchange::start_to_experts(const at::Tensor& rows_RD) const {
  if (plan_->axis.size() == 1) return {rows_RD, nullptr};
  auto transfer = std::make_shared<RowTransfer>(RowTransfer{plan_});
  return {StartFunction::apply(rows_RD.contiguous(), c10::make_intrusive<TransferHolder>(transfer)),
          transfer};
}

at::Tensor RowExchange::finish_to_experts(const Arriving& arriving) const {
  if (!arriving.transfer) return arriving.rows;
  return FinishFunction::apply(arriving.rows,
                               c10::make_intrusive<TransferHolder>(arriving.transfer));
}

at::Tensor RowExchange::from_experts(const at::Tensor& rows) const {
  return plan_->axis.size() == 1 ? rows : run_exchange(rows, plan_, /*to_experts=*/false);
}

}  // namespace trireme::parallel
