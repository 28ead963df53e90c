#include "trireme/model/generate.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <ATen/ATen.h>
#include <torch/nn/module.h>

#include "trireme/model/text_generation.h"
#include "trireme/model/text_model.h"

namespace trireme::model {
namespace {

// A whole model on this rank.
class WholeModel : public TextModel {
 public:
  explicit WholeModel(LanguageModel& model)
      : model_(model), device_(model.module().parameters().front().device()) {}

  const ModelConfig& config() const override { return model_.config(); }
  std::vector<int64_t> next_tokens(std::span<const TokenGroup> groups,
                                   const DrawToken& draw) override {
    std::vector<int64_t> drawn;
    for (size_t group = 0; group < groups.size(); ++group) {
      const CachedTokens& cached = *groups[group].cached;
      const at::Tensor logits_rV = model_.next_logits(read(groups[group]), cached);
      for (size_t run = 0; run < cached.runs.size(); ++run) {
        drawn.push_back(draw(group, run, logits_rV.select(0, static_cast<int64_t>(run))));
      }
    }
    return drawn;
  }
  std::vector<at::Tensor> token_scores(std::span<const TokenGroup> groups) override {
    std::vector<at::Tensor> scores;
    for (const TokenGroup& group : groups)
      scores.push_back(model_.token_scores(read(group), group.targets_n));
    return scores;
  }

 private:
  at::Tensor read(const TokenGroup& group) {
    const at::Tensor tokens_1n = group.tokens_1n.to(device_);
    const bool decodes = model_.config().has_decoder();
    return model_
        .forward_part({.tokens_BT = decodes ? at::Tensor() : tokens_1n,
                       .decoder_tokens_BU = decodes ? tokens_1n : at::Tensor(),
                       .cached = group.cached})
        .hidden;
  }

  LanguageModel& model_;
  at::Device device_;
};

}  // namespace

std::unique_ptr<TextModel> make_text_model(LanguageModel& model) {
  return std::make_unique<WholeModel>(model);
}

int64_t sample_token(const at::Tensor& logits_V, const GenerateOptions& options, double uniform) {
  at::Tensor logits = logits_V.detach().to(at::kDouble).contiguous();
  if (options.vocab_limit > 0 && options.vocab_limit < logits.numel()) {
    logits = logits.narrow(0, 0, options.vocab_limit);
  }
  if (options.temperature == 0) return logits.argmax().item<int64_t>();
  // The likeliest first. Ties are in the order of the tokens.
  const auto [sorted, tokens] = logits.sort(/*stable=*/true, /*dim=*/0, /*descending=*/true);
  const at::Tensor probabilities = at::softmax(sorted / options.temperature, 0);
  const auto* p = probabilities.const_data_ptr<double>();
  int64_t kept = probabilities.numel();
  if (options.top_k > 0) kept = std::min(kept, options.top_k);
  double mass = 0;
  for (int64_t i = 0; i < kept; ++i) {
    mass += p[i];
    if (mass >= options.top_p) kept = i + 1;
  }
  double left = uniform * mass;
  int64_t chosen = 0;
  while (chosen + 1 < kept && left >= p[chosen]) left -= p[chosen++];
  return tokens[chosen].item<int64_t>();
}

std::vector<std::vector<int64_t>> generate_texts(TextModel& model,
                                                 std::span<const std::vector<int64_t>> prompts,
                                                 const GenerateOptions& options,
                                                 const OnToken& on_token, const OnText& on_text) {
  std::vector<std::vector<int64_t>> results(prompts.size());
  const auto keep = [&](size_t number, std::span<const int64_t> tokens) {
    results[number].assign(tokens.begin(), tokens.end());
    if (on_text) on_text(number, tokens);
  };
  TextGeneration generation(model, prompts, options, on_token, keep);
  while (generation.step()) {
  }
  return results;
}

std::vector<std::vector<int64_t>> generate_texts(LanguageModel& model,
                                                 std::span<const std::vector<int64_t>> prompts,
                                                 const GenerateOptions& options,
                                                 const OnToken& on_token, const OnText& on_text) {
  WholeModel whole(model);
  return generate_texts(whole, prompts, options, on_token, on_text);
}

std::vector<int64_t> generate(LanguageModel& model, std::span<const int64_t> prompt,
                              const GenerateOptions& options,
                              const std::function<void(int64_t)>& on_token) {
  const std::vector<int64_t> one(prompt.begin(), prompt.end());
  return generate_texts(model, std::span(&one, 1), options,
                        [&](size_t /*number*/, int64_t token) {
                          if (on_token) on_token(token);
                          return true;
                        })
      .front();
}

}  // namespace trireme::model
