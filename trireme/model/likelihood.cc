#include "trireme/model/likelihood.h"

#include <algorithm>
#include <map>
#include <memory>

#include <ATen/ATen.h>

#include "trireme/base/error.h"
#include "trireme/model/model.h"

namespace trireme::model {
namespace {

// What a forward reads of a text: tokens [begin, end), which predict those up to `end`. Asked are
// those from `first` on.
struct Window {
  size_t text = 0;
  size_t begin = 0;
  size_t first = 0;
  size_t end = 0;

  int64_t num_tokens() const { return static_cast<int64_t>(end - begin); }
};

std::vector<Window> windows_of(std::span<const AskedText> texts, const TextModel& model) {
  const auto most = static_cast<size_t>(model.config().sequence_length);
  std::vector<Window> windows;
  for (size_t i = model.copy(); i < texts.size(); i += model.num_copies()) {
    const AskedText& text = texts[i];
    TRIREME_ASSERT(text.first >= 1, "the first token of a text has nothing before it");
    for (size_t first = text.first; first < text.tokens.size(); first += most) {
      const size_t end = std::min(first + most, text.tokens.size()) - 1;
      windows.push_back({i, end > most ? end - most : 0, first, end});
    }
  }
  return windows;
}

class Scoring {
 public:
  Scoring(TextModel& model, std::span<const AskedText> texts, const OnScores& on_scores)
      : model_(model), texts_(texts), on_scores_(on_scores), windows_(windows_of(texts, model)) {}

  void run() {
    // Texts of which nothing is asked.
    for (size_t i = model_.copy(); i < texts_.size(); i += model_.num_copies()) tell_if_whole(i);
    for (size_t done = 0;;) {
      std::vector<TokenGroup> groups;
      std::vector<std::pair<size_t, size_t>> ranges;  // of windows
      while (std::ssize(groups) < model_.groups_at_once() && done < windows_.size()) {
        const size_t begin = done;
        groups.push_back(next_group(done));
        ranges.emplace_back(begin, done);
      }
      const int64_t num_groups = model_.num_groups(std::ssize(groups));
      if (num_groups == 0) return;
      while (std::ssize(groups) < num_groups) groups.push_back(empty_group());
      const std::vector<at::Tensor> scores = model_.token_scores(groups);
      for (size_t i = 0; i < ranges.size(); ++i) take(ranges[i], scores[i]);
      for (const TokenGroup& group : groups) {
        for (const CachedRun& run : group.cached->runs) cache_->remove_text(run.text);
      }
    }
  }

 private:
  TokenGroup empty_group() const {
    return {std::make_shared<CachedTokens>(CachedTokens{cache_, {}}), at::empty({1, 0}, at::kLong),
            at::empty({0}, at::kLong)};
  }

  // Of as many windows as one forward reads, from `done` on, which it moves behind them.
  TokenGroup next_group(size_t& done) {
    auto cached = std::make_shared<CachedTokens>(CachedTokens{cache_, {}});
    std::vector<int64_t> tokens, targets;
    for (const size_t begin = done; done < windows_.size(); ++done) {
      const Window& window = windows_[done];
      if (done > begin && std::ssize(tokens) + window.num_tokens() > kTokensAtOnce) break;
      cached->runs.push_back(cache_->extend(cache_->add_text(), window.num_tokens()));
      const std::vector<int64_t>& text = texts_[window.text].tokens;
      for (size_t i = window.begin; i < window.end; ++i) {
        tokens.push_back(text[i]);
        targets.push_back(i + 1 < window.first ? kIgnoredTarget : text[i + 1]);
      }
    }
    return {std::move(cached), at::tensor(tokens, at::kLong).unsqueeze(0),
            at::tensor(targets, at::kLong)};
  }

  void take(std::pair<size_t, size_t> range, const at::Tensor& scores_n3) {
    const auto rows = scores_n3.accessor<double, 2>();
    int64_t row = 0;
    for (size_t i = range.first; i < range.second; ++i) {
      const Window& window = windows_[i];
      std::vector<TokenScore>& scores = scores_[window.text];
      for (size_t token = window.begin + 1; token <= window.end; ++token, ++row) {
        if (token < window.first) continue;
        scores.push_back({rows[row][0], static_cast<int64_t>(rows[row][1]), rows[row][2]});
      }
      tell_if_whole(window.text);
    }
  }

  void tell_if_whole(size_t number) {
    const AskedText& text = texts_[number];
    const size_t asked = text.tokens.size() - std::min(text.first, text.tokens.size());
    const std::vector<TokenScore>& scores = scores_[number];
    if (scores.size() == asked) on_scores_(number, scores);
    if (scores.size() == asked) scores_.erase(number);
  }

  TextModel& model_;
  std::span<const AskedText> texts_;
  const OnScores& on_scores_;
  std::vector<Window> windows_;
  std::map<size_t, std::vector<TokenScore>> scores_;  // of texts that are not whole yet
  std::shared_ptr<KeyCache> cache_ = std::make_shared<KeyCache>();
};

}  // namespace

void score_texts(TextModel& model, std::span<const AskedText> texts, const OnScores& on_scores) {
  const at::NoGradGuard no_grad;
  Scoring(model, texts, on_scores).run();
}

}  // namespace trireme::model
