// How a user says where a tensor lies: by names of a mesh's axes, for tensors of any size.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "trireme/spmd/place.h"

namespace trireme::spmd {

// What each axis does, the others nothing:
//   split(0, "data")                        rows on data
//   split(0, "data").split(-1, "tensor")    rows on data, the last dimension on tensor
//   replicated()                            whole on every rank
class Splits {
 public:
  // dim: from the end if negative. cuts: coordinate c of the axis has [cuts[c], cuts[c + 1]);
  // empty: as evenly as possible.
  Splits split(int dim, std::string axis, std::vector<int64_t> cuts = {}) const;
  // Each rank of the axis has values of the tensor's sizes; the tensor is their sum.
  Splits partial(std::string axis) const;

  // The same for a tensor of `sizes` on a grid. Axes of one rank do nothing.
  // what: the tensor in an error's words, such as "input \"x\""
  // Throws: ConfigError for an axis that the mesh lacks or that is named twice, a dimension that
  //         the tensor lacks, and cuts that are not those of its length
  Places on(const Grid& grid, c10::IntArrayRef sizes, std::string_view what) const;
  // The same on a mesh of `axes`, of which there need be no ranks.
  mesh::Layout layout(c10::IntArrayRef sizes, const std::vector<mesh::Axis>& axes,
                      std::string_view what) const;
  // The same without cuts, for a tensor of `dims` dimensions.
  Places evenly_on(const Grid& grid, int64_t dims, std::string_view what) const;
  // Whether the axis does something.
  bool names(std::string_view axis) const;
  // Whether the axis splits this dimension as evenly as possible.
  bool splits_evenly(int dim, std::string_view axis) const;
  bool operator==(const Splits&) const = default;

  struct Axis {
    std::string name{};
    bool is_partial = false;
    int dim = 0;
    std::vector<int64_t> cuts{};
    bool operator==(const Axis&) const = default;
  };
  const std::vector<Axis>& axes() const { return axes_; }

 private:
  std::vector<Axis> axes_{};
};

inline Splits split(int dim, std::string axis, std::vector<int64_t> cuts = {}) {
  return Splits().split(dim, std::move(axis), std::move(cuts));
}
inline Splits partial(std::string axis) { return Splits().partial(std::move(axis)); }
inline Splits replicated() { return {}; }

// What a plan says of a step's operators, beside the splits of parameters and inputs: which of
// their arguments are to lie elsewhere than they come.

// Where an operator wants an argument.
struct ArgumentNote {
  int64_t number = 0;       // of the operator in the step
  std::string operation{};  // its name, "aten::mm"
  int argument = 0;         // among its tensors
  Splits splits{};
  bool operator==(const ArgumentNote&) const = default;
};

// Of their names, in their order.
inline constexpr uint64_t kNoNames = 0xcbf29ce484222325;

// Operators are numbered as they run, from 0 in forward, and on in backward.
struct StepNotes {
  int64_t num_forward = 0, num_backward = 0;  // operators; 0: operators choose by themselves
  uint64_t forward_mark = kNoNames, backward_mark = kNoNames;
  std::vector<ArgumentNote> arguments{};  // by number

  bool empty() const { return num_forward == 0; }
  bool operator==(const StepNotes&) const = default;
};

// The tensor that blocks of the ranks make together, whatever their lengths.
struct TiledTensor {
  std::vector<int64_t> sizes;
  Places places;
};
// blocks: this rank's, or empty if it cannot go on
// splits: of each; cuts are as the blocks are
// names: of the tensors in an error's words
// Comm:       80 (p-1) bytes for each block, for p ranks of the grid
// Collective: every rank of the grid
// Throws:     ConfigError, on every rank, for blocks that do not tile a tensor
std::vector<TiledTensor> tile(const Grid& grid, c10::ArrayRef<at::Tensor> blocks,
                              c10::ArrayRef<Splits> splits, c10::ArrayRef<std::string> names);

}  // namespace trireme::spmd
