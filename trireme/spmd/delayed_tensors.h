// Tensors that are made later: what a function does to make and fill them is recorded first and
// done afterwards in the same order, so that each is cut to this rank's block before the next needs
// memory. Draws of random numbers keep their order, and so their values.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include "trireme/spmd/place.h"
#include "trireme/spmd/placed_tensor.h"

namespace trireme::spmd {

// Thread safety: one thread, from the constructor to finish().
class DelayedTensors {
 public:
  explicit DelayedTensors(GridPtr grid);
  ~DelayedTensors();
  DelayedTensors(const DelayedTensors&) = delete;
  DelayedTensors& operator=(const DelayedTensors&) = delete;

  // Calls `make`, in which tensors have sizes and no memory. An operator whose result torch cannot
  // tell the shape of, or that gives a number, has everything before it done for it: those tensors
  // are then whole until finish().
  // Throws: what `make` throws; among that what torch does for a pointer to memory that is not
  //         there yet
  void record(const std::function<void()>& make);

  // Does what is recorded. Then each delayed tensor is a placed one: `places_of` says how it is
  // split; without an answer, and for those that are no parameters, it is replicated.
  // Throws: ConfigError when a tensor that is to be split shares its memory with another
  using PlacesOf = std::function<std::optional<Places>(const PlacedMeta& tensor)>;
  void finish(const PlacesOf& places_of);

  class Recorder;

 private:
  std::unique_ptr<Recorder> recorder_;
};

}  // namespace trireme::spmd
