// A folder of torch.distributed.checkpoint (DCP), as FSDP2 and torchtitan save it: a pickle
// ".metadata" of all tensors, their chunks and places, and "__0_0.distcp" files of chunks, each an
// archive of torch.save. Names are those in the file. Values that are not tensors are left out.
// Source: torch/distributed/checkpoint/metadata.py and filesystem.py of PyTorch 2.13
#pragma once

#include "trireme/checkpoint/foreign/dcp_writer.h"
#include "trireme/checkpoint/foreign/pickle.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/mesh/layout.h"

namespace trireme::checkpoint {

class DcpSource : public TensorSource {
 public:
  // Reads the metadata only.
  // Throws: CheckpointError with the path when it is damaged, when the chunks do not cover each
  //         tensor exactly once, or when their places leave the folder, overlap or lie outside
  //         their files; Error when this process cannot open it
  explicit DcpSource(const std::filesystem::path& folder);

  const std::map<std::string, SourceTensor>& tensors() const override { return tensors_; }
  at::Tensor read(const std::string& name) const override;
  // Memory: the part, and what lies in it of its largest chunk.
  at::Tensor read_box(const std::string& name, const mesh::Box& box) const override;
  std::string kind() const override { return "a distributed checkpoint of PyTorch"; }

 private:
  struct Place {
    size_t file = 0;  // in files_
    uint64_t offset = 0;
    uint64_t size = 0;
  };
  struct Chunk {
    mesh::Box box{};
    Place place{};
  };
  using Places = std::map<std::string, std::map<std::vector<int64_t>, Place>>;  // by name, offset

  Places read_places(const PickleValue& storage);
  Place read_place(const PickleValue& info);
  size_t file_of(const PickleValue& relative_path);
  void read_tensor(const std::string& name, const PickleValue& metadata, const Places& places);
  std::vector<Chunk> read_chunks(const PickleValue& chunks, const std::string& name,
                                 const SourceTensor& tensor, const Places& places);
  void check_overlap() const;
  // `box` lies in the chunk's.
  at::Tensor read_chunk(const Chunk& chunk, const mesh::Box& box, const std::string& name,
                        at::ScalarType dtype) const;

  std::filesystem::path folder_;
  std::vector<std::string> files_;
  std::vector<uint64_t> file_bytes_;
  std::map<std::string, size_t> file_index_;
  std::map<std::string, SourceTensor> tensors_;
  std::map<std::string, std::vector<Chunk>> chunks_;  // those that have elements
  size_t num_chunks_ = 0;                             // with those that have none
};

}  // namespace trireme::checkpoint
