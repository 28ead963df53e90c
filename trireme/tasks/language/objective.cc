#include "trireme/tasks/language/objective.h"

#include <string_view>

#include "trireme/base/error.h"
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
                "a run, a checkpoint or a Hugging Face folder");
  TRIREME_CHECK(own.data.masked_share == 0, "data.masked_share is ", own.data.masked_share,
                " and objective.name \"distill\", whose models predict the next token; set one of "
                "them to its default");
  TRIREME_CHECK(
      config.parallel.servers == 0, "parallel.servers is ", config.parallel.servers,
      " and objective.name \"distill\", whose teacher shares the layout of the ranks; set "
      "parallel.servers to 0");
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
  if (objective.is_dpo()) check_dpo(own, config);
  if (objective.is_distill()) check_distill(own, config);
}

}  // namespace trireme::tasks
