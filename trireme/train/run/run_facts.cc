#include "trireme/train/run/run_facts.h"

#include <array>

#include <torch/version.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "trireme/base/build_info.h"
#include "trireme/base/clock.h"

namespace trireme::train {

std::string run_facts() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host = {};
  const nlohmann::ordered_json facts = {{"version", std::string(build_version())},
                                        {"revision", std::string(build_revision())},
                                        {"libtorch", TORCH_VERSION},
                                        {"host", host.data()},
                                        {"started", unix_seconds()}};
  return facts.dump(2, ' ', /*ensure_ascii=*/true,
                    nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace trireme::train
