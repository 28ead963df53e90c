// trireme_torch._C: makes the c10d::Backend of a group, which torch.distributed then calls itself.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/c10d/c10d_backend.h"
#include "trireme/comm/c10d/c10d_communicator.h"
#include "trireme/comm/c10d/gloo_behaviour.h"
#include "trireme/comm/recorder/recorder.h"
#include "trireme/comm/rendezvous/store_group.h"

namespace {

namespace comm = trireme::comm;
using StorePtr = c10::intrusive_ptr<c10d::Store>;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// torch's own Gloo of one group, on the interface with this address.
using MakeGloo = std::function<BackendPtr(StorePtr store, int rank, int size,
                                          std::chrono::milliseconds timeout, std::string address)>;

BackendPtr create_backend(const StorePtr& store, int rank, int size,
                          std::chrono::milliseconds timeout, const std::string& name,
                          const std::vector<int>& world_ranks,
                          const std::shared_ptr<comm::Recorder>& recorder,
                          const std::string& interface, const MakeGloo& make_gloo) {
  const auto make_gloo_group = [make_gloo](const StorePtr& group_store, int group_rank,
                                           int group_size, const comm::GlooOptions& gloo) {
    const auto make_backend = [make_gloo, address = gloo.interface.address](
                                  const StorePtr& split_store, int split_rank, int split_size,
                                  std::chrono::milliseconds split_timeout) {
      return make_gloo(split_store, split_rank, split_size, split_timeout, address);
    };
    return comm::make_c10d_group(
        make_backend, group_store, group_rank, group_size,
        {gloo.name, "gloo over " + to_string(gloo.interface), gloo.timeout, gloo.recorder});
  };
  comm::GroupOptions options;
  options.name = name;
  options.timeout = timeout;
  options.world_ranks = world_ranks;
  options.recorder = recorder;
  std::unique_ptr<comm::Communicator> group;
  comm::as_c10d_errors([&] {
    group = comm::make_store_group(store, rank, size, options,
                                   {.interface = interface, .make_gloo = make_gloo_group});
  });
  return c10::make_intrusive<comm::C10dBackend>(std::move(group), timeout);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  pybind11::class_<comm::Recorder, std::shared_ptr<comm::Recorder>>(
      module, "Recorder", "The ring of a rank's calls in `folder`, which survives the process.")
      .def(pybind11::init(
               [](const std::string& folder, int rank, int world_size, const std::string& run) {
                 return std::make_shared<comm::Recorder>(comm::RecorderOptions{
                     .folder = folder, .rank = rank, .world_size = world_size, .job = run});
               }),
           pybind11::arg("folder"), pybind11::arg("rank"), pybind11::arg("world_size"),
           pybind11::arg("run"));
  module.def("create_backend", &create_backend,
             "Joins the group of the ranks that meet at `store`; every one of them calls it.",
             pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("timeout"), pybind11::arg("name"), pybind11::arg("world_ranks"),
             pybind11::arg("recorder"), pybind11::arg("interface"), pybind11::arg("make_gloo"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
}
