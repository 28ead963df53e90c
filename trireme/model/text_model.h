// What generation asks of a model, on one rank or on many that have its parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/model/cache/key_cache.h"
#include "trireme/model/family/model_config.h"

namespace trireme::model {

// New tokens of some texts, which one forward reads. There may be none.
struct TokenGroup {
  std::shared_ptr<const CachedTokens> cached;
  at::Tensor tokens_1n{};  // [1, n] int64, of the runs one after the other
  // [n] int64: the token behind each, if token_scores() asks for it, or kIgnoredTarget.
  at::Tensor targets_n{};
};

// A forward reads at most so many tokens, but always one text's.
inline constexpr int64_t kTokensAtOnce = 4096;

// Draws the token behind run `run` of group `group` from its logits_V, [V] fp64 on the CPU, which
// it may change.
using DrawToken = std::function<int64_t(size_t group, size_t run, const at::Tensor& logits_V)>;

class LanguageModel;

// Where ranks share the work, all of them call the functions below in the same order, except
// config(). Ranks that have parts of one copy of the model read the same groups.
class TextModel {
 public:
  virtual ~TextModel() = default;
  virtual const ModelConfig& config() const = 0;
  // Of all texts, this copy of the model generates those with number % num_copies() == copy().
  virtual size_t copy() const { return 0; }
  virtual size_t num_copies() const { return 1; }
  // Groups that are worth reading at a time, so that every pipeline stage has one.
  virtual int64_t groups_at_once() const { return 1; }
  // How many groups the copies read next if this one has `mine`: all as many if they compute
  // together. 0: all have finished.
  virtual int64_t num_groups(int64_t mine) { return mine; }
  // The token behind each run, group by group. Only one rank of the copy draws.
  virtual std::vector<int64_t> next_tokens(std::span<const TokenGroup> groups,
                                           const DrawToken& draw) = 0;
  // What the model says of the groups' targets, as LanguageModel::token_scores(): [n, 3] for each.
  virtual std::vector<at::Tensor> token_scores(std::span<const TokenGroup> groups) = 0;
};

// A whole model on this rank. It outlives the result.
std::unique_ptr<TextModel> make_text_model(LanguageModel& model);

}  // namespace trireme::model
