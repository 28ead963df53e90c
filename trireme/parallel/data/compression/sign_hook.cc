#include "trireme/parallel/data/compression/sign_hook.h"

#include <utility>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/parallel/data/compression/wire.h"
#include "trireme/parallel/data/tree_sum.h"

namespace trireme::parallel {
namespace {

void copy_rows(const std::vector<at::Tensor>& from, const std::vector<SignPart>& to) {
  for (size_t i = 0; i < to.size(); ++i) to[i].rows.copy_(from[i]);
}

// What the terms stand for, added up in rank order, whatever arrived first.
// like: the shapes of the blocks
std::vector<SignPart> sum_of(const std::vector<at::Tensor>& terms,
                             const std::vector<SignPart>& like, at::ScalarType scale) {
  std::vector<SignPart> sums;
  for (const at::Tensor& term : terms) {
    const std::vector<at::Tensor> rows = decode_signs(term, like, scale);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (sums.size() <= i) {
        sums.push_back({rows[i], like[i].counts});
      } else {
        sums[i].rows.add_(rows[i]);
      }
    }
  }
  return sums;
}

}  // namespace

SignHook::SignHook(SignHookOptions options) : options_(std::move(options)) {
  TRIREME_CHECK(options_.beta >= 0 && options_.beta < 1, "the decay of the momentum is ",
                options_.beta, "; expected at least 0 and below 1");
}

void SignHook::prepare(std::span<const GradientSpec> gradients) {
  for (const GradientSpec& gradient : gradients) {
    feedback_.add_gradient(gradient);
    Parameter parameter{.blocks = SignBlocks(gradient.shape, gradient.options.device()),
                        .rank = gradient.rank};
    parameter.cuts = even_cuts(parameter.blocks.num_blocks(), gradient.num_ranks);
    const auto r = static_cast<size_t>(gradient.rank);
    parameter.server_error =
        at::zeros({parameter.cuts[r + 1] - parameter.cuts[r], parameter.blocks.width()},
                  gradient.options.dtype(compute_dtype(gradient.options)));
    parameters_.insert_or_assign(gradient.name, std::move(parameter));
  }
}

// Returns the bytes that it took.
int64_t SignHook::find_momentum(const GradientBucket& bucket, comm::Communicator& group) {
  int64_t num_bytes = 0;
  for (size_t i = 0; options_.beta > 0 && i < bucket.gradients.size(); ++i) {
    at::Tensor& momentum = parameters_.at(bucket.names[i]).momentum;
    if (momentum.defined()) continue;
    const at::TensorOptions options = bucket.gradients[i].options();
    momentum = at::zeros(bucket.gradients[i].sizes(), options.dtype(compute_dtype(options)));
    if (!options_.find_momentum || options_.find_momentum(bucket.names[i], momentum)) continue;
    // Ranks have zeros where others have numbers, so this rounds nothing.
    num_bytes += counted_all_reduce(momentum, group);
  }
  return num_bytes;
}

at::Tensor SignHook::corrected(const std::string& name, const at::Tensor& gradient,
                               int num_ranks) const {
  at::Tensor mine = gradient.to(compute_dtype(gradient.options()), false, /*copy=*/true);
  if (options_.beta > 0) {
    mine.mul_(1 - options_.beta);
    mine.add_(at::mul(parameters_.at(name).momentum, options_.beta / num_ranks));
  }
  return feedback_.corrected(name, mine);
}

// Blocks [cuts[r], cuts[r + 1]) of each gradient.
std::vector<SignPart> SignHook::part_of(const GradientBucket& bucket,
                                        const std::vector<SignPart>& blocks, int rank) const {
  const auto r = static_cast<size_t>(rank);
  std::vector<SignPart> parts;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const std::vector<int64_t>& cuts = parameters_.at(bucket.names[i]).cuts;
    const int64_t first = cuts[r], count = cuts[r + 1] - first;
    parts.push_back(
        {blocks[i].rows.narrow(0, first, count), blocks[i].counts.narrow(0, first, count)});
  }
  return parts;
}

// The first line: one code for each rank, of the blocks that it adds up. Leaves in `blocks` what
// the codes stand for.
std::vector<at::Tensor> SignHook::encode_terms(const GradientBucket& bucket, int num_ranks,
                                               std::vector<SignPart>& blocks) {
  const at::ScalarType scale = bucket.flat.scalar_type();
  std::vector<at::Tensor> whole;
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    const SignBlocks& its = parameters_.at(bucket.names[i]).blocks;
    whole.push_back(corrected(bucket.names[i], bucket.gradients[i], num_ranks));
    blocks.push_back({its.to_rows(whole[i]), its.counts()});
  }
  std::vector<at::Tensor> codes;
  for (int r = 0; r < num_ranks; ++r) {
    const std::vector<SignPart> part = part_of(bucket, blocks, r);
    codes.push_back(encode_signs(part, scale));
    copy_rows(decode_signs(codes.back(), part, scale), part);
  }
  for (size_t i = 0; i < whole.size(); ++i) {
    const at::Tensor sent = at::empty_like(whole[i]);
    parameters_.at(bucket.names[i]).blocks.copy_from_rows(blocks[i].rows, sent);
    feedback_.keep(bucket.names[i], whole[i].sub_(sent));
  }
  return codes;
}

// The second line, for this rank's blocks.
at::Tensor SignHook::encode_sum(const GradientBucket& bucket, const std::vector<SignPart>& sums) {
  const at::ScalarType scale = bucket.flat.scalar_type();
  for (size_t i = 0; i < sums.size(); ++i) {
    sums[i].rows.add_(parameters_.at(bucket.names[i]).server_error);
  }
  at::Tensor code = encode_signs(sums, scale);
  const std::vector<at::Tensor> sent = decode_signs(code, sums, scale);
  for (size_t i = 0; i < sums.size(); ++i) {
    // As ErrorFeedback::keep().
    at::nan_to_num_out(parameters_.at(bucket.names[i]).server_error, sums[i].rows.sub_(sent[i]), 0,
                       0, 0);
  }
  return code;
}

int64_t SignHook::all_reduce(const GradientBucket& bucket, comm::Communicator& group) {
  if (!options_.sends_signs()) {
    for (const std::string& name : bucket.names) parameters_.at(name).momentum.reset();
    return counted_all_reduce(bucket.flat, group);
  }
  int64_t num_bytes = find_momentum(bucket, group);
  const at::ScalarType scale = bucket.flat.scalar_type();
  std::vector<SignPart> blocks;
  const std::vector<at::Tensor> codes = encode_terms(bucket, group.size(), blocks);
  const std::vector<SignPart> own = part_of(bucket, blocks, group.rank());
  std::vector<at::Tensor> terms;
  int64_t code_bytes = 0;
  for (const at::Tensor& code : codes) {
    code_bytes += code.numel();
    terms.push_back(at::empty({sign_bytes(own, scale)}, code.options()));
  }
  group.all_to_all(terms, codes)->wait();
  num_bytes += (group.size() - 1) * code_bytes / group.size();

  const at::Tensor coded_sum = encode_sum(bucket, sum_of(terms, own, scale));
  group.all_gather(codes, coded_sum)->wait();
  num_bytes += code_bytes - coded_sum.numel();
  // Everyone decodes the same bytes, also the owner of a part.
  for (int r = 0; r < group.size(); ++r) {
    const std::vector<SignPart> part = part_of(bucket, blocks, r);
    copy_rows(decode_signs(codes[static_cast<size_t>(r)], part, scale), part);
  }
  for (size_t i = 0; i < bucket.gradients.size(); ++i) {
    Parameter& parameter = parameters_.at(bucket.names[i]);
    parameter.blocks.copy_from_rows(blocks[i].rows, bucket.gradients[i]);
    if (options_.beta > 0) parameter.momentum.copy_(bucket.gradients[i]);
  }
  return num_bytes;
}

std::vector<HookState> SignHook::state() const {
  std::vector<HookState> result = feedback_.state();
  for (const auto& [name, parameter] : parameters_) {
    result.push_back({.name = "server_error." + name,
                      .tensor = parameter.server_error,
                      .parameter = name,
                      .num_ranks = static_cast<int>(parameter.cuts.size()) - 1,
                      .rank = parameter.rank,
                      .cuts = parameter.cuts});
  }
  return result;
}

}  // namespace trireme::parallel
