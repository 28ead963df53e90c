#include "trireme/comm/c10d/gloo_group.h"

#include "trireme/base/error.h"
#include "trireme/comm/c10d/c10d_communicator.h"
#include "trireme/comm/message/message_exchange.h"

#ifdef TRIREME_HAVE_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#endif

namespace trireme::comm {

#ifdef TRIREME_HAVE_GLOO

bool has_gloo() { return true; }

std::unique_ptr<Communicator> make_gloo_group(const c10::intrusive_ptr<c10d::Store>& store,
                                              int rank, int size, const GlooOptions& options) {
  // libgloo-dev's headers are older than the Gloo inside libtorch. Gloo's objects are therefore
  // made and used only there; this code just holds pointers.
  const auto make_backend =
      [interface = options.interface](
          const c10::intrusive_ptr<c10d::Store>& group_store, int group_rank, int group_size,
          std::chrono::milliseconds timeout) -> c10::intrusive_ptr<c10d::Backend> {
    auto gloo = c10d::ProcessGroupGloo::Options::create(timeout);
    gloo->threads = 1;  // it runs no collectives
    try {
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(interface.address));
    } catch (const std::exception& error) {
      throw ConfigError(concat("Gloo cannot use interface ", to_string(interface), ": ",
                               words_of(error), "; name another with GLOO_SOCKET_IFNAME"));
    }
    return c10::make_intrusive<c10d::ProcessGroupGloo>(group_store, group_rank, group_size, gloo);
  };
  const C10dOptions c10d_options{options.name, "gloo over " + to_string(options.interface),
                                 options.timeout, options.recorder, options.cancellation};
  return make_c10d_group(make_backend, store, rank, size, c10d_options);
}

#else

bool has_gloo() { return false; }

std::unique_ptr<Communicator> make_gloo_group(const c10::intrusive_ptr<c10d::Store>&, int, int,
                                              const GlooOptions&) {
  throw ConfigError(
      "this build has no Gloo; install libgloo-dev and build with TRIREME_WITH_GLOO=ON");
}

#endif

}  // namespace trireme::comm
