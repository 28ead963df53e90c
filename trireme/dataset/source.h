// The samples that a run trains on or evaluates, by index. Says nothing about their order or which
// rank reads them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "trireme/base/random/random.h"

namespace trireme::dataset {

class Blend;

using NamedTensor = std::pair<std::string, at::Tensor>;
using NamedTensors = std::vector<NamedTensor>;

// The tensor of that name; undefined when there is none.
at::Tensor find_tensor(const NamedTensors& tensors, std::string_view name);

// Copies a sample's tensors into place `b` of a batch's, [B, ...].
// Throws: ConfigError when these are not the same, stacked
void copy_into_batch(const NamedTensors& sample, NamedTensors& batch, int64_t b);

// Thread safe: several threads read samples at one time.
class Source {
 public:
  virtual ~Source() = default;

  virtual int64_t size() const = 0;  // samples per epoch, at least 1
  // The sizes of consecutive parts that are best read one after the other, such as archives; empty
  // when any sample can be read after any other. An epoch's order keeps them together.
  virtual std::vector<int64_t> shard_sizes() const { return {}; }
  // The sources of which this one is made and their shares, by which training takes samples from
  // each (samples/blended_source.h); null: it is one. Lives as long as the source.
  virtual const Blend* blend() const { return nullptr; }

  // The tensors of sample `index`, on the CPU. All samples have the same names, dtypes and shapes.
  // augmentation: the stream of random numbers for this sample in this epoch; none in evaluation.
  // Throws: ConfigError with the file and the place when the sample cannot be read
  virtual NamedTensors get(int64_t index, std::optional<RandomKey> augmentation) const = 0;

  // Writes the tensors of get() into place `b` of a batch's, [B, ...]. By default it calls get(); a
  // source of many small samples saves the time that their tensors take.
  // Throws: as get() and copy_into_batch(); place `b` is then undefined
  virtual void get_into(int64_t index, std::optional<RandomKey> augmentation, NamedTensors& batch,
                        int64_t b) const;
};

// Bytes of one sample's tensors. Reads the first of 100 that can be read; all are alike.
// Throws: as get(), when none can
double sample_bytes(const Source& source);

}  // namespace trireme::dataset
