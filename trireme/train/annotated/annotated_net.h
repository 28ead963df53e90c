// The module of an annotated task: one torch::nn::Module, or a chain of them.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "trireme/base/error.h"

namespace trireme::train {

// A module with its forward(), which takes up to four tensors and returns one. Or a chain of such
// modules, each of which takes what the one before returns: its links are the units of ZeRO-3 and
// of recompute, and the layers of pipeline stages.
//
//   AnnotatedNet net;
//   net.add("words", torch::nn::Embedding(50, 32));
//   net.add("block", std::make_shared<Block>(32));
class AnnotatedNet {
 public:
  struct Link {
    std::string name;  // in front of its parameters' names, with a dot; "": a module alone
    std::shared_ptr<torch::nn::Module> module;
    std::function<at::Tensor(std::span<const at::Tensor>)> forward;
    bool (*takes)(size_t count);  // whether forward() takes so many tensors, and returns one

    std::string name_of(const std::string& parameter) const {
      return name.empty() ? parameter : name + "." + parameter;
    }
  };

  // A chain, still without links.
  AnnotatedNet() = default;
  template <typename Net>
  AnnotatedNet(std::shared_ptr<Net> net)  // NOLINT(google-explicit-constructor): a return value
      : module_(net), links_{link_of("", std::move(net))} {}
  template <typename Net>
  AnnotatedNet(const torch::nn::ModuleHolder<Net>& net)  // NOLINT(google-explicit-constructor)
      : AnnotatedNet(net.ptr()) {}

  // name: of the link's own, without a dot
  // Throws: ConfigError for another name, and where there is a module alone
  template <typename Net>
  void add(std::string name, std::shared_ptr<Net> net) {
    append(link_of(std::move(name), std::move(net)));
  }
  template <typename Net>
  void add(std::string name, const torch::nn::ModuleHolder<Net>& net) {
    add(std::move(name), net.ptr());
  }

  // Has all links. Only if there is one.
  torch::nn::Module& module() const { return *module_; }
  const std::vector<Link>& links() const { return links_; }
  // `count` links from `first` on, in a module without the others.
  AnnotatedNet part(size_t first, size_t count) const;

 private:
  template <typename Net, typename... Tensors>
  static constexpr bool kTakes = requires(Net& net, const Tensors&... in) {
    { net.forward(in...) } -> std::convertible_to<at::Tensor>;
  };
  template <typename Net>
  static bool takes_count(size_t count) {
    using T = at::Tensor;
    const bool takes[] = {false, kTakes<Net, T>, kTakes<Net, T, T>, kTakes<Net, T, T, T>,
                          kTakes<Net, T, T, T, T>};
    return count < std::size(takes) && takes[count];
  }
  template <typename Net, typename... Tensors>
  static at::Tensor call(Net& net, std::span<const at::Tensor> rest, const Tensors&... in) {
    if (!rest.empty()) {
      if constexpr (sizeof...(Tensors) < 4) return call(net, rest.subspan(1), in..., rest[0]);
    } else if constexpr (kTakes<Net, Tensors...>) {
      return net.forward(in...);
    }
    throw InternalError("forward() of an annotated module with other inputs than it takes");
  }
  template <typename Net>
  static Link link_of(std::string name, std::shared_ptr<Net> net) {
    return {std::move(name), net, [net](std::span<const at::Tensor> in) { return call(*net, in); },
            &takes_count<Net>};
  }
  void append(Link link);

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Link> links_;
};

}  // namespace trireme::train
