// The gradient hook of 1-bit Adam and its relatives: ranks exchange signs of their momentum.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/parallel/data/compression/feedback_hooks.h"
#include "trireme/parallel/data/compression/sign_code.h"
#include "trireme/parallel/data/gradient_hook.h"

namespace trireme::parallel {

struct SignHookOptions {
  // Decay of the momentum that is exchanged. 0: gradients are exchanged.
  double beta = 0;
  // Whether the present step sends signs. Otherwise it is a plain sum in rank order, with the bits
  // of a run without a hook. The same on every rank, constant during a step.
  std::function<bool()> sends_signs = [] { return true; };
  // With a beta: writes the parameter's momentum after the last step where signs were not sent, or
  // after a resume, into `momentum` [shape]. false: only the part that this rank has, zeros
  // elsewhere; the group's ranks then have all of it together. Empty: it starts as zero.
  std::function<bool(const std::string& parameter, const at::Tensor& momentum)> find_momentum{};
};

// In a step with signs, the group's p ranks get the new momentum m' in place of the gradient's sum.
// g_i is rank i's term of that sum, e_i its residual, s the residual of the sum, and C() the signs
// with a scale per block (sign_code.h):
//   c_i = beta / p m + (1 - beta) g_i + e_i;   e_i' = c_i - C(c_i)
//   c = sum over i of C(c_i) + s;              m' = C(c);   s' = c - m'
// Rank r computes the second line for its part of the blocks. All ranks have the same m'. It is a
// multiple of the gradient's dtype, so what an optimizer reads from the gradient is the momentum
// bit for bit.
// State:  error.<parameter> [shape], this rank's e_i; server_error.<parameter> [blocks, width], its
//         part of s. The momentum is not in state(): find_momentum() gives it after a resume.
// Memory: with a beta twice, else once 4 bytes per parameter (8 in fp64), and 4/p more
// Source: Tang et al. 2021, arXiv:2102.02888 (1-bit Adam), algorithm 1; without momentum the
//         gradients of Lu et al. 2022, arXiv:2202.06009 (0/1 Adam), section 4.1
class SignHook : public GradientHook {
 public:
  // Throws: ConfigError unless 0 <= beta < 1
  explicit SignHook(SignHookOptions options);

  void prepare(std::span<const GradientSpec> gradients) override;
  // An optimizer expects the momentum.
  bool changes_own() const override { return true; }
  // Comm: with signs two hops of (p-1)/p of the code, b itemsize + n / 8 bytes for n numbers in b
  //       blocks of up to 256; else 2(p-1)/p * n, and again for momentum that ranks have in parts
  int64_t all_reduce(const GradientBucket& bucket, comm::Communicator& group) override;
  std::vector<HookState> state() const override;

 private:
  struct Parameter {
    SignBlocks blocks;
    std::vector<int64_t> cuts{};  // of the blocks over the ranks
    int rank = 0;
    at::Tensor server_error{};  // [cuts[rank + 1] - cuts[rank], width]
    at::Tensor momentum{};      // [shape]; undefined: not found yet
  };

  int64_t find_momentum(const GradientBucket& bucket, comm::Communicator& group);
  // [shape] what this rank would send in full.
  at::Tensor corrected(const std::string& name, const at::Tensor& gradient, int num_ranks) const;
  std::vector<SignPart> part_of(const GradientBucket& bucket, const std::vector<SignPart>& blocks,
                                int rank) const;
  std::vector<at::Tensor> encode_terms(const GradientBucket& bucket, int num_ranks,
                                       std::vector<SignPart>& blocks);
  at::Tensor encode_sum(const GradientBucket& bucket, const std::vector<SignPart>& sums);

  SignHookOptions options_;
  ErrorFeedback feedback_;
  std::map<std::string, Parameter> parameters_;
};

}  // namespace trireme::parallel
