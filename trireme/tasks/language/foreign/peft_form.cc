#include "trireme/tasks/language/foreign/peft_form.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <ATen/ATen.h>

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

// Those of the plan, without their place among the adapters of their module.
std::vector<PeftStack> stacks_of(const model::ModelPlan& plan,
                                 const std::vector<HuggingFaceTensor>& tensors) {
  std::vector<PeftStack> stacks;
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    const std::string name = model::adapted_stack(parameter.name);
    const std::vector<int64_t> shape = parameter.layout.whole_shape();
    if (name.empty()) continue;
    if (stacks.empty() || stacks.back().name != name)
      stacks.push_back({.name = name, .experts = shape[0], .in = shape[2]});
    stacks.back().weights.push_back(parameter.name);
    stacks.back().out += shape[1];
  }
  for (PeftStack& stack : stacks) {
    stack.module = stack.name.substr(0, stack.name.rfind('.'));
    for (const HuggingFaceTensor& tensor : tensors) {
      if (tensor.parts.front() == stack.weights.front()) stack.alternates = tensor.alternates;
    }
  }
  return stacks;
}

// The ends of the stacks' names if these say which they are, else their whole names.
std::vector<std::string> target_parameters(const std::vector<PeftStack>& stacks,
                                           const std::vector<PeftStack>& all) {
  const auto end_of = [](const std::string& name) {
    constexpr std::string_view kModule = ".mlp.";
    return name.substr(name.rfind(kModule) + 1);
  };
  std::set<std::string> ends, names;
  for (const PeftStack& stack : stacks) {
    names.insert(stack.name);
    ends.insert(end_of(stack.name));
  }
  const bool is_exact = std::ranges::all_of(all, [&](const PeftStack& stack) {
    return names.contains(stack.name) || !ends.contains(end_of(stack.name));
  });
  const std::set<std::string>& chosen = is_exact ? ends : names;
  return {chosen.begin(), chosen.end()};
}

// peft adds adapters of one module around each other, so the first of two is in the second.
void add_stacks(PeftForm& form, const model::ModelPlan& plan,
                const std::vector<HuggingFaceTensor>& tensors) {
  const std::vector<PeftStack> all = stacks_of(plan, tensors);
  for (const model::ParameterPlan& parameter : plan.parameters()) {
    const auto found = std::ranges::find_if(all, [&](const PeftStack& stack) {
      return parameter.name == stack.name + model::kAdapterA;
    });
    if (found == all.end()) continue;
    if (!form.stacks.empty() && form.stacks.back().module == found->module)
      form.stacks.back().module += ".base_layer";
    form.stacks.push_back(*found);
  }
  form.parameters = target_parameters(form.stacks, all);
}

}  // namespace

at::Tensor PeftStack::joined_b(const std::vector<at::Tensor>& parts) const {
  const at::Tensor b_EFr = alternates ? at::stack(parts, 2).flatten(1, 2) : at::cat(parts, 1);
  return b_EFr.permute({1, 2, 0}).flatten(1).contiguous();
}

std::vector<at::Tensor> PeftStack::split_b(const at::Tensor& whole) const {
  const at::Tensor b_EFr = whole.view({out, -1, experts}).permute({2, 0, 1});
  const int64_t num = std::ssize(weights);
  return alternates ? b_EFr.unflatten(1, {-1, num}).unbind(2) : b_EFr.chunk(num, 1);
}

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
      const bool is_stack = !model::adapted_stack(tensor.parts[i]).empty();
      if (!is_stack && is_trained.contains(module_of(tensor.parts[i]) + model::kAdapterA))
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
      const bool is_of_module = tensor.name.ends_with(".weight") || tensor.name.ends_with(".bias");
      TRIREME_CHECK(is_of_module && tensor.slice < 0, "lora.also_train names ",
                    tensor.parts.front(),
                    ", and peft saves weights and biases of whole modules only: export the merged "
                    "model (--format hf)");
      form.saved.push_back(tensor);
    } else if (!matrix.parts.empty()) {
      form.matrices.push_back(std::move(matrix));
    }
  }
  form.targets = target_modules(form.matrices, tensors);
  add_stacks(form, plan, tensors);
  return form;
}

}  // namespace trireme::tasks
