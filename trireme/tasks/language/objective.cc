#include "trireme/tasks/language/objective.h"

#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/model/family/family.h"
#include "trireme/tasks/language/language.h"
#include "trireme/train/config/config.h"

namespace trireme::tasks {
namespace {

// The objective that has the key.
Objective objective_with(std::string_view key) {
  return key == "beta" || key == "label_smoothing" ? Objective::kDpo : Objective::kDistill;
}

void check_dpo(const LanguageConfig& own, const train::RunConfig& config) {
  TRIREME_CHECK(own.data.masked_share == 0, "data.masked_share is ", own.data.masked_share,
                " and objective.name \"dpo\", which scores whole answers; set one of them to its "
                "default");
  TRIREME_CHECK(own.data.packing == dataset::Packing::kStream,
                "data.packing is \"whole\" and objective.name \"dpo\", which gives each answer a "
                "sequence of its own; leave data.packing out");
  TRIREME_CHECK(config.parallel.servers == 0, "parallel.servers is ", config.parallel.servers,
                " and objective.name \"dpo\", whose reference is the model that all ranks begin "
                "with together; set parallel.servers to 0");
}

void check_distill(const LanguageConfig& own, const train::RunConfig& config) {
  TRIREME_CHECK(!own.objective.teacher.empty(),
                "objective.name is \"distill\" and objective.teacher empty; set it to the teacher: "
                "a run, a checkpoint, a Hugging Face folder, or a file of its outputs");
  TRIREME_CHECK(own.data.masked_share == 0, "data.masked_share is ", own.data.masked_share,
                " and objective.name \"distill\", whose models predict the next token; set one of "
                "them to its default");
  TRIREME_CHECK(
      config.parallel.servers == 0, "parallel.servers is ", config.parallel.servers,
      " and objective.name \"distill\", whose teacher shares the layout of the ranks; set "
      "parallel.servers to 0");
}

void check_teachers(const ObjectiveConfig& objective, int64_t teachers) {
  if (teachers == 0) return;
  TRIREME_CHECK(objective.is_distill(), "parallel.teachers is ", teachers, " and objective.name \"",
                name_of(kObjectives, objective.name),
                "\", which has no teacher; set parallel.teachers to 0");
  TRIREME_CHECK(!is_file(objective.teacher), "parallel.teachers is ", teachers,
                " and objective.teacher ", shown(objective.teacher),
                " a file of outputs, which needs no ranks; set parallel.teachers to 0, or name the "
                "teacher itself");
}

void check_classify(const LanguageConfig& own) {
  const std::string& family = own.model.family;
  TRIREME_CHECK(model::family_of(own.model).has_classes(),
                "objective.name is \"classify\" and model.family \"", family,
                "\", which has no head that classifies texts; set model.family to \"bert\"");
  TRIREME_CHECK(own.data.masked_share == 0 && own.data.mask_token < 0, "data.masked_share is ",
                own.data.masked_share, ", data.mask_token ", own.data.mask_token,
                " and objective.name \"classify\", which hides no tokens; set data.masked_share to "
                "0, and leave data.mask_token out");
  TRIREME_CHECK(
      own.data.packing == dataset::Packing::kStream && !own.data.separate_documents,
      "data.packing is \"", name_of(dataset::kPackings, own.data.packing),
      "\", data.separate_documents ", own.data.separate_documents ? "true" : "false",
      " and objective.name \"classify\", which gives each text a sequence of its own; leave both "
      "out");
}

}  // namespace

void check_objective(const LanguageConfig& own, const train::RunConfig& config) {
  const ObjectiveConfig& objective = own.objective;
  visit_keys<ObjectiveConfig>([&](const auto& key) {
    const Objective of_key = objective_with(key.name);
    TRIREME_CHECK(std::string_view(key.name) == "name" || objective.name == of_key ||
                      objective.*key.member == ObjectiveConfig{}.*key.member,
                  "objective.", key.name, " is set and objective.name \"",
                  name_of(kObjectives, objective.name),
                  "\", which does not use it; set the name to \"", name_of(kObjectives, of_key),
                  "\", or leave it out");
  });
  check_teachers(objective, config.parallel.teachers);
  if (objective.is_dpo()) check_dpo(own, config);
  if (objective.is_distill()) check_distill(own, config);
  if (objective.is_classify()) check_classify(own);
  TRIREME_CHECK(objective.is_classify() || own.model.classes == 0, "model.classes is ",
                own.model.classes, " and objective.name \"", name_of(kObjectives, objective.name),
                "\", which does not use it; set the name to \"classify\", or leave it out");
}

}  // namespace trireme::tasks
