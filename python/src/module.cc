// trireme_torch._C: makes the c10d::Backend of a group, which torch.distributed then calls itself.
#include <chrono>
#include <memory>
#include <string>

#include <pybind11/chrono.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "trireme/comm/c10d_backend.h"
#include "trireme/comm/store_group.h"

namespace {

c10::intrusive_ptr<c10d::Backend> create_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size,
                                                 std::chrono::milliseconds timeout,
                                                 const std::string& name) {
  trireme::comm::GroupOptions options;
  options.name = name;
  options.timeout = timeout;
  return c10::make_intrusive<trireme::comm::C10dBackend>(
      trireme::comm::make_store_group(store, rank, size, options), timeout);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.def("create_backend", &create_backend,
             "Joins the group of the ranks that meet at `store`; every one of them calls it.",
             pybind11::arg("store"), pybind11::arg("rank"), pybind11::arg("size"),
             pybind11::arg("timeout"), pybind11::arg("name"),
             pybind11::call_guard<pybind11::gil_scoped_release>());
}
