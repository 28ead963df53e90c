#include "trireme/train/config/config_schema.h"

#include <type_traits>

#include "trireme/base/error.h"

namespace trireme::train::inline internal {
namespace {

template <typename Section, typename Value>
Field field_of(std::string_view section, Section& values, const Key<Section, Value>& key) {
  Value* const value = &(values.*key.member);
  const auto where = [&]() -> decltype(Field::value) {
    if constexpr (std::is_enum_v<Value>) {
      return NamedValue(value, key.choices);
    } else {
      return value;
    }
  };
  Field field{.key = concat(section, ".", key.name),
              .value = where(),
              .meaning = std::string(key.meaning),
              .range = key.range,
              .on_resume = key.on_resume};
  if (key.names != nullptr) field.allowed = key.names();
  if constexpr (std::is_enum_v<Value>) field.allowed = names_of(key.choices);
  return field;
}

}  // namespace

std::vector<Field> schema(RunConfig& config) {
  std::vector<Field> fields;
  const auto add = [&]<typename Section>(std::string_view name, Section& section) {
    visit_keys<Section>([&](const auto& key) { fields.push_back(field_of(name, section, key)); });
  };
  add("model", config.model);
  add("data", config.data);
  add("train", config.train);
  add("optimizer", config.optimizer);
  add("parallel", config.parallel);
  add("offload", config.offload);
  add("checkpoint", config.checkpoint);
  add("output", config.output);
  add("resume", config.resume);
  return fields;
}

}  // namespace trireme::train::inline internal
