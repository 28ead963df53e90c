// Files of PyTorch as tests forge them, to damage any part of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/harness/zip.h"
#include "trireme/checkpoint/foreign/pickle.h"

namespace trireme::checkpoint {

// A tensor of float32 as a pickle of PyTorch refers to it.
struct PickledTensor {
  std::string storage = "0";
  int64_t storage_size = 6;
  int64_t offset = 0;
  std::vector<int64_t> shape{2, 3};
  std::vector<int64_t> strides{3, 1};
  std::string type = "FloatStorage";
};

inline void add_tensor(Pickler& pickler, const PickledTensor& tensor) {
  pickler.global("torch._utils", "_rebuild_tensor_v2").mark();
  pickler.mark().text("storage").global("torch", tensor.type).text(tensor.storage).text("cpu");
  pickler.integer(tensor.storage_size).tuple().persistent().integer(tensor.offset);
  pickler.integers(tensor.shape).integers(tensor.strides).boolean(false);
  pickler.global("collections", "OrderedDict").empty_tuple().call().tuple().call();
}

// A file of torch.save with this pickle, and a storage "0" of 24 bytes.
inline std::string archive_of(const std::string& pickle) {
  return harness::make_zip({{"archive/data.pkl", pickle},
                            {"archive/byteorder", "little"},
                            {"archive/data/0", std::string(24, 'x')}})
      .bytes;
}

}  // namespace trireme::checkpoint
