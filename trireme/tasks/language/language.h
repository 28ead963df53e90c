// The task of language modelling: predict each token from those before it, or hidden tokens from
// all others, or prefer one answer to another. Models are the families of trireme/model, data is a
// token file. Also says what a run costs, in the words of the cost model (trireme/plan).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "trireme/base/bounds.h"
#include "trireme/base/choice.h"
#include "trireme/base/key.h"
#include "trireme/dataset/packed_source.h"
#include "trireme/dataset/tokenizer.h"
#include "trireme/model/family/model_config.h"
#include "trireme/parallel/pipeline/schedule/split.h"
#include "trireme/plan/cost/workload.h"
#include "trireme/train/config/config.h"
#include "trireme/train/task/task.h"

namespace trireme::tasks {

struct TokenDataConfig {
  TRIREME_KEYS_BEGIN(TokenDataConfig)
  TRIREME_KEY(std::string, path, "data/python", kMustStay,
              "prefix of the token files, as given to `trireme data prepare --output`")
  TRIREME_KEY(bool, separate_documents, false, kMustStay,
              "mask attention across the documents of a sequence, and count positions from the "
              "beginning of each")
  TRIREME_KEY(dataset::Packing, packing, dataset::Packing::kStream, kMustStay,
              "how documents become sequences: stream cuts all tokens at every sequence_length; "
              "whole puts whole documents together, and padding where none fits",
              dataset::kPackings)
  TRIREME_KEY(double, masked_share, 0.0, kMustStay,
              "masked language modelling: share of the tokens that are hidden and predicted from "
              "all others, such as 0.15, as bert needs it; 0 = predict the next token",
              Range{0, 1})
  TRIREME_KEY(int64_t, mask_token, -1, kMustStay,
              "masked language modelling: token that takes the place of hidden ones; -1 = the "
              "tokenizer's [MASK] or <mask>",
              Range{-1, kMaxVocabulary - 1})
  TRIREME_KEYS_END()
};

enum class Objective {
  kNextToken,  // cross-entropy of each token
  kDpo,        // preference_loss.h
};
inline constexpr Choice<Objective> kObjectives[] = {{"next_token", Objective::kNextToken},
                                                    {"dpo", Objective::kDpo}};

struct ObjectiveConfig {
  TRIREME_KEYS_BEGIN(ObjectiveConfig)
  TRIREME_KEY(Objective, name, Objective::kNextToken, kMustStay,
              "what is learnt: next_token, the text; dpo, to prefer the chosen answer of each pair "
              "to the rejected one, beside the initial model (direct preference optimization)",
              kObjectives)
  TRIREME_KEY(double, beta, 0.1, kMustStay,
              "dpo: how strongly the model is held to the initial one; lower values let it go "
              "further",
              Range{.minimum = 0, .maximum = 1e6, .above_minimum = true})
  TRIREME_KEY(double, label_smoothing, 0, kMustStay,
              "dpo: probability that a pair has its answers the wrong way round",
              Range{.minimum = 0, .maximum = 0.5, .below_maximum = true})
  TRIREME_KEYS_END()

  bool is_dpo() const { return name == Objective::kDpo; }
};

// The keys of the task, in the sections [model], [data] and [objective].
struct LanguageConfig {
  model::ModelConfig model;
  TokenDataConfig data;
  ObjectiveConfig objective;

  // Takes the model of another program, and the objective that it was trained with.
  void take_model(const model::ModelConfig& other);
  // Sequences of the model that a sample has.
  int64_t sequences_per_sample() const { return objective.is_dpo() ? 2 : 1; }
};

std::unique_ptr<train::Task> make_language_task();
inline constexpr train::TaskKind kLanguage = {"language", "predict the next token of text",
                                              make_language_task};

// The task's keys in a config of this task.
// Throws: InternalError when the config is another task's
LanguageConfig& language_of(train::RunConfig& config);
const LanguageConfig& language_of(const train::RunConfig& config);
// The tokenizer of the task's data. Null before Task::open().
const dataset::Tokenizer* tokenizer_of(const train::RunConfig& config);

// One step of a resolved config, with the model's vocabulary known.
plan::Workload workload_of(const train::RunConfig& config, const LanguageConfig& own);

// As plan::layer_costs().
std::vector<parallel::LayerCost> layer_costs(const train::RunConfig& config,
                                             const LanguageConfig& own);

}  // namespace trireme::tasks
