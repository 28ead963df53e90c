// Any torch::nn module on any mesh: say how a few tensors are split, the rest follows.
//
//   Annotations notes{.parameters = {{"*.fc1.weight", split(0, "tensor")},
//                                    {"*.fc2.weight", split(1, "tensor")}},
//                     .inputs = {{"x", split(0, "data")}}, .outputs = {{"y", split(0, "data")}}};
//   auto net = annotate(mesh, notes, [] { return Net(1024); });
//   at::Tensor y = net.forward(x);
//
// Parameters, inputs and results are placed tensors (placed_tensor.h). An operator that wants a
// tensor elsewhere moves it, with the fewest bytes; report() lists what that costs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/mesh/device_mesh.h"
#include "trireme/spmd/move_log.h"
#include "trireme/spmd/placed_tensor.h"
#include "trireme/spmd/splits.h"

namespace torch::nn {
class Module;
}

namespace trireme::spmd {

class DelayedTensors;

struct Annotation {
  std::string name;
  Splits splits{};
};

struct Annotations {
  // Patterns of parameters' and buffers' names, see matches() in base/patterns.h. Parameters
  // without one are whole on every rank.
  std::vector<Annotation> parameters{};
  // The tensors that forward() takes, in their order, and those that it returns. Names are for
  // messages and local_input(). Those at the end may be left out: they stay as they come.
  std::vector<Annotation> inputs{};
  std::vector<Annotation> outputs{};
  // Of torch's default generator while the module is made, and of its dropout.
  uint64_t seed = 0;
  // A plan's, see plan/shard/shard_notes.h. Without it each operator chooses by itself.
  StepNotes step{};
};

// A parameter or buffer of a module as its annotations see it.
struct NamedSizes {
  std::string name;
  std::vector<int64_t> sizes{};
  bool is_parameter = true;
  bool requires_grad = true;
  // The first name of the same tensor, if it has several; otherwise its own.
  std::string first_name{};
};
std::vector<NamedSizes> named_sizes(const torch::nn::Module& module);
// The same of the module that make() makes, keeps and returns, without memory for its values unless
// make() reads some. Called as in annotate(). Needs no ranks.
std::vector<NamedSizes> named_sizes(const std::function<torch::nn::Module*()>& make);
// How annotate() splits the tensors on a mesh of `axes`. Needs no ranks.
// Throws: ConfigError as annotate() for patterns and splits
std::vector<mesh::Layout> layouts_of(const Annotations& notes,
                                     const std::vector<NamedSizes>& tensors,
                                     const std::vector<mesh::Axis>& axes);

// What an annotated module knows beside its module. Thread safety: one thread drives it.
class AnnotatedTensors {
 public:
  // `mesh` must outlive all tensors.
  AnnotatedTensors(const mesh::DeviceMesh& mesh, Annotations notes);

  // Makes the module and places its parameters; `make` keeps it and returns it. See annotate().
  void make(const std::function<torch::nn::Module*()>& make);

  const GridPtr& grid() const { return grid_; }
  // A forward begins. trains: whether backward follows, so that the step is the plan's.
  void begin_forward(bool trains) const;
  // Whether `make` needed the whole module in memory.
  bool was_whole() const { return was_whole_; }
  // Differentiable; see place_as().
  at::Tensor input(size_t index, const at::Tensor& tensor) const;
  at::Tensor output(size_t index, const at::Tensor& tensor) const;
  // The input of which this rank has `local` alone, as annotated. The ranks' lengths may differ.
  // Comm:       8 (p-1) bytes for each axis of p ranks that splits it
  // Collective: the groups of those axes
  // Throws:     ConfigError for a name that is no input's, and blocks that are none
  at::Tensor local_input(const std::string& name, const at::Tensor& local) const;
  // Refuses annotations beyond the tensors that forward() takes or gives.
  void check_inputs(size_t count) const;
  void check_outputs(size_t count) const;

  MoveLog& log() const { return *log_; }

 private:
  struct Placed {
    std::string name;
    at::Tensor tensor;
    bool is_parameter;
    bool is_annotated = false;
    Places places{};
  };
  std::vector<Placed> placed_tensors(torch::nn::Module& module) const;
  void place_parameters(torch::nn::Module& module, DelayedTensors& delayed);
  void check_agreement(const torch::nn::Module& module) const;

  std::shared_ptr<MoveLog> log_;
  GridPtr grid_;
  Annotations notes_;
  bool was_whole_ = false;
};

// A module (a torch::nn::ModuleHolder, a shared_ptr, or the module itself) with its annotations.
template <typename Net>
class Annotated {
 public:
  Annotated(AnnotatedTensors tensors, std::shared_ptr<Net> net)
      : tensors_(std::move(tensors)), net_(std::move(net)) {}

  // The module's forward(): tensors that are annotated are placed before, and results after. Takes
  // whole tensors, equal on every rank, or placed ones; other arguments are passed on.
  // Collective: every rank of the mesh, and so is backward
  // Throws:     ConfigError, the same on every rank, for an operator without a rule and others that
  //             a split tensor does not allow, with the module and the tensors' places
  template <typename... Arguments>
  auto forward(Arguments&&... arguments) {
    size_t inputs = 0, outputs = 0;
    tensors_.begin_forward(module().is_training());
    // Braces: from left to right.
    std::tuple<decltype(input(std::declval<Arguments>(), inputs))...> placed{
        input(std::forward<Arguments>(arguments), inputs)...};
    tensors_.check_inputs(inputs);
    auto result = output(
        std::apply([&](auto&... each) { return module().forward(each...); }, placed), outputs);
    tensors_.check_outputs(outputs);
    return result;
  }

  auto& module() {
    if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
      return *net_;
    } else {
      return **net_;
    }
  }
  auto* operator->() { return &module(); }
  const GridPtr& grid() const { return tensors_.grid(); }
  const AnnotatedTensors& tensors() const { return tensors_; }
  at::Tensor local_input(const std::string& name, const at::Tensor& local) const {
    return tensors_.local_input(name, local);
  }
  // Every redistribution of this rank since the beginning or clear_report(); to_table() prints it.
  std::vector<Move> report() const { return tensors_.log().moves(); }
  void clear_report() { tensors_.log().clear(); }

 private:
  template <typename Argument>
  std::conditional_t<std::is_convertible_v<Argument, const at::Tensor&>, at::Tensor, Argument>
  input(Argument&& argument, size_t& index) const {
    if constexpr (std::is_convertible_v<Argument, const at::Tensor&>) {
      return tensors_.input(index++, argument);
    } else {
      return std::forward<Argument>(argument);
    }
  }

  at::Tensor output(const at::Tensor& tensor, size_t& index) const {
    return tensors_.output(index++, tensor);
  }
  template <typename... Tensors>
  std::tuple<Tensors...> output(std::tuple<Tensors...> results, size_t& index) const {
    std::apply([&](auto&... each) { ((each = output(std::move(each), index)), ...); }, results);
    return results;
  }
  std::vector<at::Tensor> output(std::vector<at::Tensor> results, size_t& index) const {
    for (at::Tensor& tensor : results) tensor = output(tensor, index);
    return results;
  }
  template <typename Other>
  Other output(Other result, size_t&) const {
    return result;
  }

  AnnotatedTensors tensors_;
  std::shared_ptr<Net> net_;
};

// Makes a module on the mesh. Each rank keeps its blocks only, of the values that
// at::manual_seed(notes.seed) and make() give on one rank. make's operators are first recorded,
// then done one after the other, so that a rank has the memory of its blocks and of the tensors
// that are being made, one layer's in torch's modules. If make() reads values or writes memory by
// pointers, it is called again with the whole module in memory: tensors().was_whole().
// make: called once or twice, under a lock that ranks of one process share. Gradients come in the
//       parameter's places: partial sums are reduced before they are accumulated.
// Comm:       8 (p-1) bytes for p ranks of the world
// Collective: every rank of the mesh
// Throws:     ConfigError for a pattern that matches nothing (with the nearest name), a parameter
//             that two patterns match, splits that do not fit, and ranks that made other parameters
template <typename Make>
auto annotate(const mesh::DeviceMesh& mesh, Annotations notes, Make make) {
  using Net = std::invoke_result_t<Make&>;
  AnnotatedTensors tensors(mesh, std::move(notes));
  std::shared_ptr<Net> net;
  tensors.make([&]() -> torch::nn::Module* {
    net = std::make_shared<Net>(make());
    if constexpr (std::is_base_of_v<torch::nn::Module, Net>) {
      return net.get();
    } else {
      return &**net;
    }
  });
  return Annotated<Net>(std::move(tensors), std::move(net));
}

}  // namespace trireme::spmd
