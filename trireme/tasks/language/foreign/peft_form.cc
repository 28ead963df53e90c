#include "trireme/tasks/language/foreign/peft_form.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/model/family/plan.h"
#include "trireme/model/hugging_face.h"

namespace trireme::tasks {
namespace {

using model::HuggingFaceTensor;

// The last words of the layers' names if these say which they are, else their whole names.
std::vector<std::string> target_modules(const std::vector<PeftMatrix>& matrices,
                                        const std::vector<HuggingFaceTensor>& tensors) {
  const auto last_word = [](const std::string& module) {
    return module.substr(module.rfind('.') + 1);
  };
  std::set<std::string> words, modules;
  for (const PeftMatrix& matrix : matrices) {
    modules.insert(matrix.module());
    words.insert(last_word(matrix.module()));
  }
  const bool is_exact = std::ranges::all_of(tensors, [&](const HuggingFaceTensor& tensor) {
    const std::string module = module_of(tensor.name);
    return modules.contains(module) || !words.contains(last_word(module));
  });
  const std::set<std::string>& chosen = is_exact ? words : modules;
  return {chosen.begin(), chosen.end()};
}

}  // namespace

std::string module_of(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

mesh::Range PeftMatrix::rows_of(size_t part) const {
  mesh::Range rows{0, tensor.rows_of(part, out())};
  for (size_t i = 0; i < part; ++i) rows.offset += tensor.rows_of(i, out());
  return rows;
}

PeftForm peft_form(const model::ModelConfig& config) {
  std::map<std::string, bool> is_trained;
  const model::ModelPlan plan = model::make_plan(config);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    is_trained[parameter.name] = parameter.is_trained;
  }
  PeftForm form;
  std::vector<HuggingFaceTensor> tensors = model::hugging_face_tensors(config);
  for (const HuggingFaceTensor& tensor : tensors) {
    PeftMatrix matrix{tensor};
    for (size_t i = 0; i < tensor.parts.size(); ++i) {
      if (is_trained.contains(module_of(tensor.parts[i]) + model::kAdapterA))
        matrix.parts.push_back(i);
    }
    const auto trained = std::ranges::count_if(tensor.parts, [&](const std::string& part) {
      const auto found = is_trained.find(part);  // a buffer is no parameter
      return found != is_trained.end() && found->second;
    });
    TRIREME_CHECK(
        trained == 0 || (matrix.parts.empty() && trained == std::ssize(tensor.parts)),
        "lora.also_train names ", tensor.parts.front(), ", which is in ", tensor.name,
        " of transformers with other layers or with an adapter; peft has one or the other "
        "for all of it: export the merged model (--format hf)");
    if (trained > 0) {
      TRIREME_CHECK(tensor.name.ends_with(".weight") || tensor.name.ends_with(".bias"),
                    "lora.also_train names ", tensor.parts.front(),
                    ", and peft saves weights and biases of whole modules only: export the merged "
                    "model (--format hf)");
      form.saved.push_back(tensor);
    } else if (!matrix.parts.empty()) {
      form.matrices.push_back(std::move(matrix));
    }
  }
  form.targets = target_modules(form.matrices, tensors);
  return form;
}

}  // namespace trireme::tasks
