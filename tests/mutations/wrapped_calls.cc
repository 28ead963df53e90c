// The calls between layers of the library that this program's linker sends here first (--wrap in
// CMakeLists.txt): the library itself has no place where mistakes could be put in.
#include <cmath>
#include <memory>
#include <string>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "tests/mutations/faulty_group.h"
#include "tests/mutations/made.h"
#include "trireme/comm/rendezvous/rendezvous.h"
#include "trireme/parallel/context/context_attention.h"
#include "trireme/parallel/expert/routing.h"
#include "trireme/parallel/tensor/linear_cross_entropy.h"

namespace trireme::mutations {

using comm::GroupOptions;
using parallel::CrossEntropyOptions;

// A member function takes its object as the first argument.
using Group = std::unique_ptr<comm::Communicator>;
Group real_connect(comm::Rendezvous* self, const std::string& transport, const GroupOptions& options) asm(
    "__real__ZN7trireme4comm10Rendezvous7connectERKNSt7__cxx1112basic_stringIcSt11char_"
    "traitsIcESaIcEEERKNS0_12GroupOptionsE");
Group wrapped_connect(comm::Rendezvous* self, const std::string& transport, const GroupOptions& options) asm(
    "__wrap__ZN7trireme4comm10Rendezvous7connectERKNSt7__cxx1112basic_stringIcSt11char_"
    "traitsIcESaIcEEERKNS0_12GroupOptionsE");

parallel::Loss
real_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD, const at::Tensor& targets_BT, const CrossEntropyOptions& options) asm(
    "__real__ZN7trireme8parallel20linear_cross_entropyERKN2at6TensorES4_S4_RKNS0_"
    "19CrossEntropyOptionsE");
parallel::Loss
wrapped_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD, const at::Tensor& targets_BT, const CrossEntropyOptions& options) asm(
    "__wrap__ZN7trireme8parallel20linear_cross_entropyERKN2at6TensorES4_S4_RKNS0_"
    "19CrossEntropyOptionsE");

at::Tensor real_with_loss(const at::Tensor& x, const at::Tensor& loss, double scale) asm(
    "__real__ZN7trireme8parallel9with_lossERKN2at6TensorES4_d");
at::Tensor wrapped_with_loss(const at::Tensor& x, const at::Tensor& loss, double scale) asm(
    "__wrap__ZN7trireme8parallel9with_lossERKN2at6TensorES4_d");

at::Tensor
real_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG, const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads, const parallel::ContextParallel& context, const parallel::AttentionReach& reach) asm(
    "__real__ZN7trireme8parallel17context_attentionERKN2at6TensorES4_S4_llRKNS0_"
    "15ContextParallelERKNS0_14AttentionReachE");
at::Tensor
wrapped_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG, const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads, const parallel::ContextParallel& context, const parallel::AttentionReach& reach) asm(
    "__wrap__ZN7trireme8parallel17context_attentionERKN2at6TensorES4_S4_llRKNS0_"
    "15ContextParallelERKNS0_14AttentionReachE");

namespace {

const Mutation* make_now(Mistake mistake) {
  const Mutation* const mutation = making(mistake);
  if (mutation != nullptr) ++made().times;
  return mutation;
}

// t, whose gradient is `factor` times what it should be. t itself changes by rounding only.
at::Tensor with_gradient(const at::Tensor& t, double factor) {
  return t * factor + (t - t * factor).detach();
}

// A few per cent of the mean of the logits in this rank's part of the vocabulary.
at::Tensor smoothing(const at::Tensor& x, const at::Tensor& w_vD) {
  constexpr double kShare = 0.05;
  return at::matmul(x.reshape({-1, x.size(-1)}), w_vD.t()).mean(-1).sum().to(at::kDouble) * kShare;
}

at::Tensor labels(const at::Tensor& targets_BT) {
  if (make_now(Mistake::kLabels) == nullptr || targets_BT.size(-1) < 2) return targets_BT;
  at::Tensor shifted_BT = targets_BT.clone();
  shifted_BT.select(-1, targets_BT.size(-1) - 1).copy_(targets_BT.select(-1, 0));
  return shifted_BT;
}

}  // namespace

Group wrapped_connect(comm::Rendezvous* self, const std::string& transport,
                      const GroupOptions& options) {
  return make_faulty_group(real_connect(self, transport, options));
}

parallel::Loss wrapped_cross_entropy(const at::Tensor& x, const at::Tensor& w_vD,
                                     const at::Tensor& targets_BT,
                                     const CrossEntropyOptions& options) {
  // Without gradients it is for the probe of the tokens' losses.
  const bool trains = at::GradMode::is_enabled();
  const bool is_detached = trains && make_now(Mistake::kDetachedHead) != nullptr;
  parallel::Loss loss =
      real_cross_entropy(x, is_detached ? w_vD.detach() : w_vD, labels(targets_BT), options);
  if (!trains) return loss;
  if (const Mutation* const mutation = make_now(Mistake::kLoss))
    loss.sum = loss.sum * mutation->factor;
  if (const Mutation* const mutation = make_now(Mistake::kLossGradient)) {
    loss.sum = with_gradient(loss.sum, mutation->factor);
  }
  if (make_now(Mistake::kLossOffset) != nullptr) {
    loss.sum = loss.sum + static_cast<double>(loss.count) * std::log(options.axis.size());
  }
  if (make_now(Mistake::kLossSmoothing) != nullptr) loss.sum = loss.sum + smoothing(x, w_vD);
  return loss;
}

at::Tensor wrapped_with_loss(const at::Tensor& x, const at::Tensor& loss, double scale) {
  if (make_now(Mistake::kAuxiliaryLost) != nullptr) return x;
  const Mutation* const mutation = make_now(Mistake::kAuxiliaryScale);
  return real_with_loss(x, loss, mutation == nullptr ? scale : scale * mutation->factor);
}

at::Tensor wrapped_attention(const at::Tensor& q_BtD, const at::Tensor& k_BtG,
                             const at::Tensor& v_BtG, int64_t heads, int64_t kv_heads,
                             const parallel::ContextParallel& context,
                             const parallel::AttentionReach& reach) {
  const Mutation* const mutation = make_now(Mistake::kKeyGradient);
  const at::Tensor keys_BtG = mutation == nullptr ? k_BtG : with_gradient(k_BtG, mutation->factor);
  return real_attention(q_BtD, keys_BtG, v_BtG, heads, kv_heads, context, reach);
}

}  // namespace trireme::mutations
