#include "trireme/model/family/family.h"

namespace trireme::model {

Initialiser Family::initialiser_of(const ModelConfig& config, std::string_view name) const {
  return default_initialiser(config, name);
}

}  // namespace trireme::model
