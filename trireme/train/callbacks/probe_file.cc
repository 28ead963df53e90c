#include "trireme/train/callbacks/probe_file.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <system_error>
#include <tuple>

#include <ATen/ATen.h>
#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/digest.h"
#include "trireme/base/locale/text.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

constexpr int64_t kMostDims = 16;
constexpr const char* kFromRank = "a rank's probes";

uint64_t bytes_of(const std::vector<int64_t>& shape, at::ScalarType dtype) {
  uint64_t bytes = c10::elementSize(dtype);
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

int64_t rows_in(const std::vector<mesh::Box>& boxes) {
  int64_t rows = 0;
  for (const mesh::Box& box : boxes) rows += box.size[0];
  return rows;
}

// Calls `use(rank, block)` for each box once, of the lowest rank that has it.
template <typename Use>
void for_each_box(std::span<const StoredProbes> ranks, const std::string& name, const Use& use) {
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, const StoredBlock*> found;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto probe = ranks[rank].find(name);
    if (probe == ranks[rank].end()) continue;
    for (const StoredBlock& block : probe->second.blocks) {
      const auto [place, is_new] = found.try_emplace({block.box.offset, block.box.size}, &block);
      use(rank, block, is_new ? nullptr : place->second);
    }
  }
}

// Elements of a block, row-major, from number `first` on. into: contiguous
void read_elements(const InputFile& file, const StoredBlock& block, int64_t first,
                   const at::Tensor& into) {
  file.read(block.offset + static_cast<uint64_t>(first) * into.element_size(),
            {static_cast<std::byte*>(into.mutable_data_ptr()), into.nbytes()});
}

// The part of a block that lies in `common`. into: of its shape
void read_part(const std::filesystem::path& path, const StoredBlock& block, mesh::Box common,
               const at::Tensor& into) {
  const InputFile file(path);
  for (size_t dim = 0; dim < common.offset.size(); ++dim)
    common.offset[dim] -= block.box.offset[dim];
  const int64_t first = common.offset[0] * (block.box.numel() / block.box.size[0]);
  std::vector<int64_t> shape = block.box.size;  // of the rows
  shape[0] = common.size[0];
  if (shape == common.size && into.is_contiguous()) return read_elements(file, block, first, into);
  const at::Tensor rows = at::empty(shape, into.options());
  read_elements(file, block, first, rows);
  common.offset[0] = 0;
  into.copy_(checkpoint::view_box(rows, common));
}

// Of two blocks with the same box.
struct BlockDifference {
  double absolute = 0;  // infinite if any is not finite
  double largest = 0;   // |value| of both
};

BlockDifference compare_blocks(const std::filesystem::path& a_path, const StoredBlock& a,
                               const std::filesystem::path& b_path, const StoredBlock& b,
                               at::ScalarType dtype) {
  constexpr int64_t kElements = int64_t{1} << 14;  // at a time: 128 KiB as doubles
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const InputFile a_file(a_path), b_file(b_path);
  BlockDifference found;
  const int64_t numel = a.box.numel();
  for (int64_t first = 0; first < numel; first += kElements) {
    const auto read = [&](const InputFile& file, const StoredBlock& block) {
      const at::Tensor part = at::empty({std::min(kElements, numel - first)}, dtype);
      read_elements(file, block, first, part);
      return part.to(at::kDouble);
    };
    const at::Tensor x = read(a_file, a), y = read(b_file, b);
    const double off = (x - y).abs().max().item<double>();
    found.absolute = std::isfinite(off) ? std::max(found.absolute, off) : kInfinite;
    found.largest =
        std::max({found.largest, x.abs().max().item<double>(), y.abs().max().item<double>()});
  }
  return found;
}

}  // namespace

void check_room(const std::filesystem::path& path, const ProbeRoom& room, uint64_t num_bytes) {
  constexpr double kMega = 1e6;
  const double wanted = static_cast<double>(num_bytes) * static_cast<double>(room.copies);
  const auto free = static_cast<double>(room.free);
  TRIREME_CHECK(wanted <= free, path.string(), ": the disk has ", format("%.1f", free / kMega),
                " MB free, and the probes need ", format("%.1f", wanted / kMega),
                " MB or more; give another output.folder, or fewer steps in record.activations");
}

std::string to_text(const StoredProbes& probes) {
  nlohmann::json text = nlohmann::json::array();
  for (const auto& [name, probe] : probes) {
    nlohmann::json blocks = nlohmann::json::array();
    for (const StoredBlock& block : probe.blocks) {
      blocks.push_back({block.box.offset, block.box.size, block.offset, block.digest});
    }
    text.push_back({name, checkpoint::dtype_name(probe.dtype), probe.whole, probe.stage,
                    probe.order, std::move(blocks)});
  }
  return text.dump();
}

StoredProbes parse_probes(const std::string& text) {
  const std::string source = kFromRank;
  const nlohmann::json values = parse_json(text, source, {.max_values = size_t{64} << 20});
  StoredProbes probes;
  for (const JsonView& each : JsonView(values, source).elements()) {
    const std::vector<JsonView> parts = each.elements();
    if (parts.size() != 6) each.fail("six values");
    StoredProbe probe{.dtype = checkpoint::parse_dtype(parts[1].text()),
                      .whole = parts[2].integers(0),
                      .stage = static_cast<int>(parts[3].integer(0, 1 << 20)),
                      .order = parts[4].integer(0)};
    const size_t num_dims = probe.whole.size();
    if (num_dims == 0 || num_dims > kMostDims) parts[2].fail("1 to 16 sizes");
    for (const JsonView& stored : parts[5].elements()) {
      const std::vector<JsonView> block = stored.elements();
      if (block.size() != 4) stored.fail("four values");
      probe.blocks.push_back({.box = {.offset = block[0].integers(0), .size = block[1].integers(0)},
                              .offset = static_cast<uint64_t>(block[2].integer(0)),
                              .digest = block[3].text()});
      const mesh::Box& box = probe.blocks.back().box;
      if (box.offset.size() != num_dims || box.size.size() != num_dims)
        stored.fail("a box of the probe");
    }
    probes.emplace(parts[0].word(), std::move(probe));
  }
  return probes;
}

ProbeFile::ProbeFile(std::filesystem::path path, ProbeRoom room)
    : path_(std::move(path)), room_(room), file_(path_) {}

ProbeFile::~ProbeFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

StoredProbe& ProbeFile::probe_of(const verify::ProbedBlock& block) {
  const at::ScalarType dtype = block.values.scalar_type();
  const auto [found, is_new] = probes_.try_emplace(block.name);
  StoredProbe& probe = found->second;
  if (is_new) {
    probe = {.dtype = dtype,
             .whole = block.whole,
             .stage = block.stage,
             .order = std::ssize(probes_) - 1};
    if (!block.name.ends_with(verify::kGradientEnd)) {
      counted_ += 2 * bytes_of(block.whole, dtype);
      check_room(path_, room_, counted_);
    }
  }
  TRIREME_CHECK(probe.whole == block.whole && probe.dtype == dtype, "probe \"", block.name,
                "\" has shape ", at::IntArrayRef(block.whole), " and type ", dtype, " after ",
                at::IntArrayRef(probe.whole), " and ", probe.dtype,
                "; expected one form in all microbatches, and a name of its own for each tensor");
  return probe;
}

void ProbeFile::put(const verify::ProbedBlock& block) {
  const std::lock_guard lock(mutex_);
  if (block.boxes.empty()) return;
  StoredProbe& probe = probe_of(block);
  if (!seen_.emplace(block.name, block.boxes.front().offset).second) return;
  const at::Tensor values = block.values.detach().to(at::kCPU).contiguous();
  TRIREME_ASSERT(values.dim() == std::ssize(block.whole) && values.size(0) == rows_in(block.boxes),
                 "boxes of probe ", block.name);
  const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
  for (const mesh::Box& box : block.boxes) {
    const uint64_t num_bytes = bytes_of(box.size, probe.dtype);
    const std::span part(bytes, num_bytes);
    probe.blocks.push_back({.box = box, .offset = end_, .digest = to_text(digest_of(part))});
    file_.write(part.data(), part.size());
    bytes += num_bytes;
    end_ += num_bytes;
  }
}

at::Tensor read_blocks(std::span<const std::filesystem::path> files,
                       std::span<const StoredProbes> ranks, const std::string& name,
                       const mesh::Box& box) {
  at::Tensor values;
  const auto dtype_in = [&](size_t rank) { return ranks[rank].at(name).dtype; };
  for_each_box(ranks, name, [&](size_t rank, const StoredBlock& block, const StoredBlock* before) {
    if (!values.defined()) values = at::zeros(box.size, dtype_in(rank));
    const mesh::Box common = mesh::intersect(box, block.box);
    if (before != nullptr || common.numel() == 0) return;
    mesh::Box place = common;
    for (size_t dim = 0; dim < common.offset.size(); ++dim) place.offset[dim] -= box.offset[dim];
    read_part(files[rank], block, common, checkpoint::view_box(values, place));
  });
  return values;
}

ProbeReplicas compare_replicas(std::span<const std::filesystem::path> files,
                               std::span<const StoredProbes> ranks, const std::string& name) {
  std::set<int> differing;
  ProbeReplicas found;
  double largest = 0;
  std::map<const StoredBlock*, size_t> owners;
  for_each_box(ranks, name, [&](size_t rank, const StoredBlock& block, const StoredBlock* before) {
    if (before == nullptr) {
      owners[&block] = rank;
      return;
    }
    if (before->digest == block.digest) return;
    differing.insert(static_cast<int>(rank));
    const BlockDifference one = compare_blocks(files[owners.at(before)], *before, files[rank],
                                               block, ranks[rank].at(name).dtype);
    found.absolute = std::max(found.absolute, one.absolute);
    largest = std::max(largest, one.largest);
  });
  found.ranks.assign(differing.begin(), differing.end());
  found.relative =
      std::isfinite(found.absolute) && largest > 0 ? found.absolute / largest : found.absolute;
  return found;
}

int64_t num_covered(std::span<const StoredProbes> ranks, const std::string& name) {
  int64_t elements = 0;
  for_each_box(ranks, name,
               [&](size_t /*rank*/, const StoredBlock& block, const StoredBlock* before) {
                 if (before == nullptr) elements += block.box.numel();
               });
  return elements;
}

}  // namespace trireme::train
