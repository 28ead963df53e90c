// Errors in reading data are the user's to fix, but for a store that does not answer.
#pragma once

#include <string_view>

#include "trireme/base/error.h"

namespace trireme::dataset {

// Runs `action`. Its errors become ConfigErrors that end in `advice`; ConfigErrors and CommErrors
// pass unchanged.
template <typename Action>
auto as_config_error(Action action, std::string_view advice = "") {
  try {
    return action();
  } catch (const ConfigError&) {
    throw;
  } catch (const CommError&) {
    throw;
  } catch (const Error& error) {
    throw ConfigError(concat(error.what(), advice));
  }
}

}  // namespace trireme::dataset
