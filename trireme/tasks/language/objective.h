// What a language model learns: the section [objective].
#pragma once

#include <string>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"

namespace trireme::train {
struct RunConfig;
}

namespace trireme::tasks {

struct LanguageConfig;

enum class Objective {
  kNextToken,  // cross-entropy of each token
  kDpo,        // preference_loss.h
  kDistill,    // parallel/tensor/linear_distillation.h
  kClassify,   // cross-entropy of each text's label
};
inline constexpr Choice<Objective> kObjectives[] = {{"next_token", Objective::kNextToken},
                                                    {"dpo", Objective::kDpo},
                                                    {"distill", Objective::kDistill},
                                                    {"classify", Objective::kClassify}};

struct ObjectiveConfig {
  TRIREME_KEYS_BEGIN(ObjectiveConfig)
  TRIREME_KEY(
      Objective, name, Objective::kNextToken, kMustStay,
      "what is learnt: next_token, the text; dpo, to prefer the chosen answer of each pair "
      "to the rejected one, beside the initial model (direct preference optimization); "
      "distill, the text and what a frozen teacher predicts of it (knowledge distillation); "
      "classify, the label of each text (bert)",
      kObjectives)
  TRIREME_KEY(double, beta, 0.1, kMustStay,
              "dpo: how strongly the model is held to the initial one; lower values let it go "
              "further",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(double, label_smoothing, 0, kMustStay,
              "dpo: probability that a pair has its answers the wrong way round",
              Range{.minimum = 0, .maximum = 0.5, .below_maximum = true})
  TRIREME_KEY(
      std::string, teacher, "", kMustStay,
      "distill: the teacher, which has the same vocabulary and tokenizer: a run, a "
      "checkpoint, a Hugging Face folder, or a file of its outputs (`trireme data outputs`); "
      "another path to the same content is no change")
  TRIREME_KEY(double, temperature, 1, kMustStay,
              "distill: what the logits of both models are divided by; higher values give unlikely "
              "tokens more weight",
              Range{.minimum = 0, .maximum = 1e3, .above_minimum = true})
  TRIREME_KEY(double, weight, 0.5, kMustStay,
              "distill: share of the divergence from the teacher in the loss; the rest is the "
              "cross-entropy",
              Range{0, 1})
  TRIREME_KEYS_END()

  bool is_dpo() const { return name == Objective::kDpo; }
  bool is_distill() const { return name == Objective::kDistill; }
  bool is_classify() const { return name == Objective::kClassify; }
};

// Checks the section against the task's other keys and the run's, without data.
// Throws: ConfigError
void check_objective(const LanguageConfig& own, const train::RunConfig& config);

}  // namespace trireme::tasks
