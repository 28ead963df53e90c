#include "trireme/dataset/chat/builtins/call.h"

#include <algorithm>

#include "trireme/base/words.h"
#include "trireme/dataset/chat/values/value_order.h"

namespace trireme::dataset::chat {

namespace {
constexpr size_t kShownArgument = 40;
}

Parameters::Parameters(Run& run, std::string callee, const CallArguments& arguments,
                       std::initializer_list<std::string_view> names, size_t num_required)
    : run_(run), callee_(std::move(callee)), names_(names), values_(names.size()) {
  if (arguments.positional.size() > names_.size()) {
    run_.fail(callee_, " is given ", arguments.positional.size(), " arguments; it takes at most ",
              names_.size());
  }
  std::ranges::copy(arguments.positional, values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end()) {
      run_.fail(callee_, " is given the argument ", shown(name, kShownArgument),
                ", which it does not take");
    }
    auto& place = values_[static_cast<size_t>(found - names_.begin())];
    if (place) run_.fail(callee_, " is given the argument ", name, " twice");
    place = value;
  }
  for (size_t i = 0; i < num_required; ++i) {
    if (!values_[i]) run_.fail(callee_, " is not given its argument ", names_[i]);
  }
}

Value Parameters::value_or(size_t index, Value otherwise) const {
  if (values_[index]) return *values_[index];
  return otherwise;
}

void Parameters::refuse(size_t index, std::string_view expected) const {
  require_defined(run_, *values_[index]);
  run_.fail(callee_, " is given ", kind_of(*values_[index]), " as ", names_[index], "; expected ",
            expected);
}

const Text& Parameters::text(size_t index) const {
  const Text* text = values_[index]->as_text();
  if (!text) refuse(index, "a text");
  return *text;
}

int64_t Parameters::integer(size_t index, int64_t otherwise) const {
  int64_t integer = otherwise;
  if (values_[index] && !values_[index]->get_integer(integer)) refuse(index, "an integer");
  return integer;
}

bool Parameters::truth(size_t index, bool otherwise) const {
  return values_[index] ? is_true(*values_[index]) : otherwise;
}

std::optional<std::string_view> Parameters::optional_text(size_t index) const {
  if (!values_[index] || values_[index]->is_none()) return std::nullopt;
  return text(index).bytes;
}

std::optional<Function> find_function(std::string_view name) {
  constexpr std::pair<std::string_view, Function> kFunctions[] = {
      {"range", Function::kRange},
      {"dict", Function::kDict},
      {"namespace", Function::kNamespace},
      {"raise_exception", Function::kRaiseException},
      {"strftime_now", Function::kStrftimeNow}};
  const auto found =
      std::ranges::find(kFunctions, name, [](const auto& entry) { return entry.first; });
  return found == std::end(kFunctions) ? std::nullopt : std::optional(found->second);
}

Value call_filter(Run& run, const Value& name, const Value& input, const CallArguments& arguments) {
  const Run::Deeper deeper(run);
  const Text* text = name.as_text();
  const FilterFunction filter = text ? find_filter(text->bytes) : nullptr;
  if (!filter) {
    run.fail("there is no filter ",
             text ? shown(text->bytes, kShownArgument) : std::string(kind_of(name)),
             " here; there are ", filter_names());
  }
  return filter(run, input, arguments);
}

bool call_test(Run& run, const Value& name, const Value& input, const CallArguments& arguments) {
  const Text* text = name.as_text();
  const TestFunction test = text ? find_test(text->bytes) : nullptr;
  if (!test) {
    run.fail("there is no test ",
             text ? shown(text->bytes, kShownArgument) : std::string(kind_of(name)),
             " here; there are ", test_names());
  }
  return test(run, input, arguments);
}

}  // namespace trireme::dataset::chat
