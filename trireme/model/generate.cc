#include "trireme/model/generate.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>

#include "trireme/base/error.h"
#include "trireme/base/random/random.h"
#include "trireme/model/cache/key_cache.h"
#include "trireme/model/text_model.h"

namespace trireme::model {
namespace {

void check_options(const GenerateOptions& options) {
  TRIREME_CHECK(options.max_tokens >= 0, "the number of tokens is ", options.max_tokens,
                "; expected at least 0");
  TRIREME_CHECK(options.temperature >= 0, "temperature is ", options.temperature,
                "; expected at least 0");
  TRIREME_CHECK(options.top_k >= 0, "top-k is ", options.top_k, "; expected at least 0");
  TRIREME_CHECK(options.top_p > 0 && options.top_p <= 1, "top-p is ", options.top_p,
                "; expected above 0 and at most 1");
  TRIREME_CHECK(options.repetition_penalty > 0, "the repetition penalty is ",
                options.repetition_penalty, "; expected above 0, such as 1.1, or 1 for none");
  TRIREME_CHECK(options.texts_at_once >= 1, "the number of texts at once is ",
                options.texts_at_once, "; expected at least 1");
}

struct Text {
  size_t number = 0;  // of its prompt
  RandomKey key{};
  std::vector<int64_t> tokens;  // of the prompt, and those drawn
  int64_t drawn = 0;
  int64_t kept = -1;  // its number in the cache; -1: it has none
};

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
    return model_.forward_part({.tokens_BT = group.tokens_1n.to(device_), .cached = group.cached})
        .hidden;
  }

  LanguageModel& model_;
  at::Device device_;
};

void penalise(const at::Tensor& logits_V, std::span<const int64_t> text, double penalty) {
  if (penalty == 1) return;
  const at::Tensor index = std::get<0>(at::_unique(at::tensor(text, at::kLong)));
  const at::Tensor found = logits_V.index_select(0, index);
  logits_V.index_copy_(0, index, at::where(found > 0, found / penalty, found * penalty));
}

class Generator {
 public:
  Generator(TextModel& model, const GenerateOptions& options, const OnToken& on_token)
      : model_(model), options_(options), on_token_(on_token) {}

  // Draws the next token of each text, if there are any. Returns those that have ended; nothing
  // when all copies of the model have no text left.
  std::optional<std::vector<size_t>> step(std::vector<Text>& texts) {
    std::vector<TokenGroup> groups;
    std::vector<size_t> first;    // text of each group
    std::vector<size_t> passing;  // texts that do not stay in the cache
    for (size_t begin = 0; begin < texts.size();) {
      first.push_back(begin);
      begin = add_group(texts, begin, groups, passing);
    }
    const int64_t num_groups = model_.num_groups(std::ssize(groups));
    if (num_groups == 0) return std::nullopt;
    while (std::ssize(groups) < num_groups) groups.push_back(empty_group());
    const std::vector<int64_t> drawn =
        model_.next_tokens(groups, [&](size_t group, size_t run, const at::Tensor& logits_V) {
          return draw(texts[first[group] + run], logits_V);
        });
    for (const size_t i : passing) forget(texts[i]);
    std::vector<size_t> ended;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (!add(texts[i], drawn[i])) ended.push_back(i);
    }
    return ended;
  }

  void forget(Text& text) {
    if (text.kept >= 0) cache_->remove_text(text.kept);
    text.kept = -1;
  }

 private:
  TokenGroup empty_group() const {
    return {std::make_shared<CachedTokens>(CachedTokens{cache_, {}}), at::empty({1, 0}, at::kLong)};
  }

  // Of what is new of some texts from `begin` on; returns the end of them.
  size_t add_group(std::vector<Text>& texts, size_t begin, std::vector<TokenGroup>& groups,
                   std::vector<size_t>& passing) {
    auto cached = std::make_shared<CachedTokens>(CachedTokens{cache_, {}});
    std::vector<int64_t> tokens;
    const int64_t num_groups = model_.groups_at_once();
    const auto most_texts = static_cast<size_t>((std::ssize(texts) + num_groups - 1) / num_groups);
    size_t end = begin;
    for (; end < texts.size() && end - begin < most_texts; ++end) {
      Text& text = texts[end];
      const int64_t most = model_.config().sequence_length;
      const auto length = static_cast<int64_t>(text.tokens.size());
      const bool fits = length <= most && options_.keeps_keys;
      const int64_t count = !fits ? std::min(length, most) : text.kept >= 0 ? 1 : length;
      if (end > begin && std::ssize(tokens) + count > kTokensAtOnce) break;
      if (!fits) {
        forget(text);
        passing.push_back(end);
      }
      if (text.kept < 0) text.kept = cache_->add_text();
      cached->runs.push_back(cache_->extend(text.kept, count));
      tokens.insert(tokens.end(), text.tokens.end() - count, text.tokens.end());
    }
    groups.push_back({std::move(cached), at::tensor(tokens, at::kLong).unsqueeze(0)});
    return end;
  }

  int64_t draw(const Text& text, const at::Tensor& logits_V) const {
    const VisionConfig& vision = model_.config().vision;
    if (vision.is_on()) logits_V[vision.image_token] = -std::numeric_limits<double>::infinity();
    penalise(logits_V, text.tokens, options_.repetition_penalty);
    const double uniform = random_uniform(text.key, static_cast<uint64_t>(text.drawn));
    return sample_token(logits_V, options_, uniform);
  }

  // Whether the text goes on.
  bool add(Text& text, int64_t token) const {
    if (std::ranges::find(options_.stop_tokens, token) != options_.stop_tokens.end()) return false;
    text.tokens.push_back(token);
    ++text.drawn;
    const bool goes_on = !on_token_ || on_token_(text.number, token);
    return goes_on && text.drawn < options_.max_tokens;
  }

  TextModel& model_;
  const GenerateOptions& options_;
  const OnToken& on_token_;
  std::shared_ptr<KeyCache> cache_ = std::make_shared<KeyCache>();
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
  check_options(options);
  for (const std::vector<int64_t>& prompt : prompts) {
    TRIREME_CHECK(!prompt.empty(), "the prompt has no tokens; expected at least one");
    const VisionConfig& vision = model.config().vision;
    TRIREME_CHECK(!vision.is_on() || std::ranges::find(prompt, vision.image_token) == prompt.end(),
                  "the prompt has the image token ", vision.image_token,
                  ", and generation reads text only; leave it out");
  }
  std::vector<std::vector<int64_t>> results(prompts.size());
  if (options.max_tokens == 0) {
    for (size_t i = model.copy(); on_text && i < prompts.size(); i += model.num_copies())
      on_text(i, {});
    return results;
  }
  const c10::NoGradGuard no_grad;
  Generator generator(model, options, on_token);
  std::vector<Text> texts;
  size_t next = model.copy();
  for (;;) {
    for (; next < prompts.size() && std::ssize(texts) < options.texts_at_once;
         next += model.num_copies()) {
      const RandomKey key =
          random_key(options.seed, next == 0 ? "generate" : concat("generate/", next));
      texts.push_back({.number = next, .key = key, .tokens = prompts[next]});
    }
    const auto ended = generator.step(texts);
    if (!ended) return results;
    for (size_t i = ended->size(); i-- > 0;) {
      Text& text = texts[(*ended)[i]];
      generator.forget(text);
      results[text.number].assign(text.tokens.end() - text.drawn, text.tokens.end());
      if (on_text) on_text(text.number, results[text.number]);
      texts.erase(texts.begin() + static_cast<std::ptrdiff_t>((*ended)[i]));
    }
  }
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
