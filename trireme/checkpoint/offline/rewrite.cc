#include "trireme/checkpoint/offline/rewrite.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/machine/machine.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/checkpoint/write/save_job.h"
#include "trireme/comm/shared/thread_group.h"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;
using Plan = std::map<std::string, TensorRecord>;

// Dimension 0 is preferred because its boxes are contiguous.
mesh::Layout cut_evenly(const std::vector<int64_t>& shape, int num_ranks) {
  const std::vector<mesh::Axis> axes{{"shard", num_ranks}};
  if (shape.empty()) return {shape, axes};
  const auto longest = std::max_element(shape.begin(), shape.end());
  const auto dim = shape[0] >= num_ranks ? 0 : static_cast<int>(longest - shape.begin());
  return {shape, axes, {mesh::Placement::sharded(dim)}};
}

Plan plan_evenly(const SavedTensors& source, int num_ranks) {
  Plan plan;
  for (const auto& [name, tensor] : source.tensors()) {
    const mesh::Layout layout = cut_evenly(tensor.shape, num_ranks);
    TensorRecord record{.dtype = tensor.dtype,
                        .shape = tensor.shape,
                        .axes = layout.axes(),
                        .placements = layout.placements()};
    for (int rank = 0; rank < num_ranks; ++rank) {
      const mesh::Box box = layout.local_box(rank);
      // Replicas would be written once per rank.
      if (box.numel() > 0 && layout.owner(rank) == rank) record.pieces.push_back({.box = box});
    }
    plan.emplace(name, std::move(record));
  }
  return plan;
}

Plan plan_as_saved(const SavedTensors& source) {
  Plan plan = source.manifest().tensors;
  for (auto& [name, record] : plan) {
    // The chunks belong to the source's files.
    for (Piece& piece : record.pieces) piece = {.box = piece.box};
  }
  return plan;
}

size_t most_pieces(const Plan& plan) {
  size_t most = 0;
  for (const auto& [name, record] : plan) most = std::max(most, record.pieces.size());
  return most;
}

// A tensor's boxes go into different files: of a tensor with a box for each rank, box i into file
// i, so that a rank which loads its box reads one file; otherwise into the smallest files.
void assign_files(Plan& plan, int num_ranks) {
  // Boxes that match the ranks go first: a rank that loads its box then opens one file.
  const auto has_all = [&](const TensorRecord* record) {
    return std::ssize(record->pieces) == num_ranks;
  };
  std::vector<TensorRecord*> order;
  for (auto& [name, record] : plan) order.push_back(&record);
  std::ranges::stable_sort(order, [&](const TensorRecord* a, const TensorRecord* b) {
    return has_all(a) != has_all(b) ? has_all(a) : a->num_bytes() > b->num_bytes();
  });
  std::vector<int64_t> load_bytes(num_ranks, 0);
  for (TensorRecord* record : order) {
    std::vector<int> ranks(num_ranks);
    std::iota(ranks.begin(), ranks.end(), 0);
    if (!has_all(record))
      std::ranges::stable_sort(ranks, {}, [&](int rank) { return load_bytes[rank]; });
    const auto element_bytes = static_cast<int64_t>(c10::elementSize(record->dtype));
    for (size_t i = 0; i < record->pieces.size(); ++i) {
      record->pieces[i].file = shard_name(ranks[i], num_ranks);
      load_bytes[ranks[i]] += record->pieces[i].box.numel() * element_bytes;
    }
  }
}

// Measured with 117 tensors and 64 to 256 ranks: 360 to 420.
constexpr double kBytesPerPairOfRanks = 500;

void require_room(size_t num_tensors, int num_ranks) {
  const double needed =
      kBytesPerPairOfRanks * static_cast<double>(num_tensors) * num_ranks * num_ranks;
  // Reports are texts, exchanged by all ranks; half leaves room for the tensors.
  const auto available = static_cast<double>(machine_memory_bytes()) / 2;
  TRIREME_CHECK(needed <= available, "a checkpoint of ", num_tensors, " tensors for ", num_ranks,
                " ranks takes a memory of about ", needed, " bytes to write; expected at most ",
                available, ", half of this machine's: choose fewer ranks");
}

Plan make_plan(const SavedTensors& source, int asked_ranks, int& num_ranks) {
  Plan plan;
  if (asked_ranks == kAsSaved) {
    plan = plan_as_saved(source);
    const auto most = static_cast<int64_t>(most_pieces(plan));
    TRIREME_CHECK(most <= kMaxRewriteRanks, "a tensor of the checkpoint has ", most,
                  " boxes; expected at most ", kMaxRewriteRanks,
                  ": write it for fewer ranks first with trireme checkpoint reshard");
    // More boxes than files cannot be: a tensor has at most one box in a file.
    const int saved_by = std::min(source.num_ranks(), kMaxRewriteRanks);
    num_ranks = std::max(saved_by, static_cast<int>(most));
  } else {
    num_ranks = asked_ranks;
    TRIREME_CHECK(num_ranks >= 1 && num_ranks <= kMaxRewriteRanks, "cannot write a checkpoint of ",
                  num_ranks, " ranks; expected at least 1 and at most ", kMaxRewriteRanks);
  }
  require_room(source.tensors().size(), num_ranks);
  if (asked_ranks != kAsSaved) plan = plan_evenly(source, num_ranks);
  assign_files(plan, num_ranks);
  return plan;
}

// The digests of the piece's chunks in the source, if they are cut in the same way; otherwise none.
std::vector<Digest> known_digests(const Manifest& manifest, const std::string& name,
                                  const OwnPiece& piece) {
  for (const Piece& saved : manifest.tensors.at(name).pieces) {
    // A patched piece has chunks with old rows.
    if (saved.box != piece.box || !saved.patches.empty()) continue;
    std::vector<Digest> digests;
    std::vector<uint64_t> chunk_bytes;
    for (const Chunk& chunk : saved.chunks) {
      digests.push_back(chunk.digest);
      chunk_bytes.push_back(chunk.num_bytes);
    }
    if (chunk_bytes == piece.chunk_bytes) return digests;
  }
  return {};
}

using ReadBox = std::function<at::Tensor(const std::string& name, const mesh::Box& box)>;

// The tensors of one file. They are read when they are written; the references must outlive them.
std::vector<OwnPiece> pieces_in(const std::string& file, const Plan& plan, const Manifest& manifest,
                                const ReadBox& read) {
  std::vector<OwnPiece> pieces;
  for (const auto& [name, record] : plan) {
    for (const Piece& planned : record.pieces) {
      if (planned.file != file) continue;
      const mesh::Box& box = planned.box;
      OwnPiece piece{
          .name = name,
          .dtype = record.dtype,
          .box = box,
          .chunk_bytes = cut_into_chunks(box, c10::elementSize(record.dtype)),
          .offloaded = lazy_box(name, box, record.dtype, [&read, &name](const mesh::Box& part) {
            return read(name, part);
          })};
      // Known digests save the hashing of every chunk that is only copied.
      piece.digests = known_digests(manifest, name, piece);
      pieces.push_back(std::move(piece));
    }
  }
  return pieces;
}

void count_bytes(const Manifest& manifest, Rewritten& result) {
  for (const FileRecord& file : manifest.files) {
    if (!is_shared(file)) result.written_bytes += static_cast<int64_t>(file.num_bytes);
  }
  for (const auto& [name, record] : manifest.tensors) {
    for (const Piece& piece : record.pieces) {
      for (const Chunk& chunk : piece.chunks) {
        if (is_shared(manifest.files.at(chunk.file)))
          result.shared_bytes += static_cast<int64_t>(chunk.num_bytes);
      }
    }
  }
}

}  // namespace

Rewritten rewrite(const SavedTensors& source, const fs::path& root, const RewriteOptions& options) {
  Rewritten result{.num_bytes = num_bytes(source)};
  const Plan plan = make_plan(source, options.num_ranks, result.num_ranks);
  std::mutex mutex;
  int64_t done = 0;
  const ReadBox read = [&](const std::string& name, const mesh::Box& box) {
    at::Tensor values = source.read_box(name, box);
    const std::lock_guard lock(mutex);
    // One counter for all ranks, which are threads.
    done += static_cast<int64_t>(values.nbytes());
    if (options.on_progress) options.on_progress(done, result.num_bytes);
    return values;
  };
  const SaveOptions save_options{.keep = 0,
                                 .incremental = options.incremental,
                                 .compression = options.compression,
                                 .epoch = options.epoch};
  comm::run_thread_group(result.num_ranks, [&](comm::Communicator& world) {
    const std::string file = shard_name(world.rank(), world.size());
    EarlierSaves earlier;
    // The second half of a save: nothing to copy, and the plan is known.
    SaveJob({root, save_options}, source.step(), world.rank() == 0 ? plan : Plan(),
            pieces_in(file, plan, source.manifest(), read), source.state(), earlier)
        .finish(world, world);
  });
  count_bytes(read_manifest(root / folder_name(source.step(), options.epoch)), result);
  return result;
}

}  // namespace trireme::checkpoint
