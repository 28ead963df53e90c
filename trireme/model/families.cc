// The registry of families. A new family adds its header and one line here.
#include <string>
#include <vector>

#include "trireme/base/choice.h"
#include "trireme/base/error.h"
#include "trireme/model/bert/bert.h"
#include "trireme/model/family/family.h"
#include "trireme/model/family/model_config.h"
#include "trireme/model/gemma/gemma.h"
#include "trireme/model/gpt2/gpt2.h"
#include "trireme/model/llama/llama.h"
#include "trireme/model/t5/t5.h"

namespace trireme::model {
namespace {

constexpr Choice<const Family& (*)()> kFamilies[] = {
    {"llama", llama_family}, {"mixtral", mixtral_family}, {"gpt2", gpt2_family},
    {"gemma", gemma_family}, {"bert", bert_family},       {"t5", t5_family},
};

}  // namespace

std::vector<std::string> family_names() { return names_of(kFamilies); }

const Family& family_of(const ModelConfig& config) {
  const auto* const found = find_choice(kFamilies, config.family);
  TRIREME_CHECK(found != nullptr, "model.family = \"", config.family,
                "\" is unknown; expected one of ", joined(family_names()), ": choose one of them");
  return found->value();
}

std::vector<const HuggingFaceKind*> hugging_face_kinds() {
  std::vector<const HuggingFaceKind*> kinds;
  for (const auto& family : kFamilies) {
    const auto of_family = family.value().hugging_face_kinds();
    kinds.insert(kinds.end(), of_family.begin(), of_family.end());
  }
  return kinds;
}

}  // namespace trireme::model
