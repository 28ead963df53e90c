#include <algorithm>
#include <exception>
#include <set>
#include <utility>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/agreement.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/read/host_reads.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/checkpoint/shards.h"

namespace trireme::checkpoint {

// A load has to end in the same way on all ranks. First every rank reads the manifest and tells
// what it asks for; all merge the same reports and so refuse or accept together, before a single
// element is touched. Then each reads what only it wants, and what several ranks of a host want is
// read by one of them. A rank that fails in its own part still does its part for the others and
// throws afterwards, or they would wait for its chunks. Patches come last: they replace rows of
// chunks, which must all be there first, also those that another rank has read. Every chunk is
// compared with its digest and copied at once, while it is in the cache. A first pass to verify all
// would read everything twice, so a damaged checkpoint leaves values behind and the caller has to
// drop the tensors.

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// How this rank's entries differ from the checkpoint, apart from the names on which both agree.
struct Differences {
  std::set<std::string> wanted;      // every name asked for
  std::set<std::string> mismatches;  // "\"w\" is F32 [2, 3], expected F32 [3, 3]"
};

Differences compare(const Manifest& manifest, std::span<const Entry> entries,
                    const LoadOptions& options) {
  Differences result;
  for (const Entry& entry : entries) {
    // One tensor in two places would be copied twice, and one of them is a mistake.
    if (!result.wanted.insert(entry.name).second)
      throw CheckpointError(concat("\"", entry.name, "\" is asked for twice"));
    const auto found = manifest.tensors.find(entry.name);
    if (found == manifest.tensors.end()) continue;
    const TensorRecord& saved = found->second;
    const bool same_dtype = options.converts || saved.dtype == entry.local.scalar_type();
    if (same_dtype && saved.shape == entry.layout.whole_shape()) continue;
    result.mismatches.insert(concat("\"", entry.name, "\" is ", dtype_name(saved.dtype), " ",
                                    at::IntArrayRef(saved.shape), ", expected ",
                                    dtype_name(entry.local.scalar_type()), " ",
                                    at::IntArrayRef(entry.layout.whole_shape())));
  }
  return result;
}

// The combined reports of all ranks.
struct Reports {
  Differences differences{};
  std::vector<std::string> described{};  // see HostReads
};

Reports merge(std::span<const std::string> texts) {
  Reports result;
  for (const std::string& text : texts) {
    const json report = json::parse(text);
    result.differences.wanted.merge(report.at("wanted").get<std::set<std::string>>());
    result.differences.mismatches.merge(report.at("mismatches").get<std::set<std::string>>());
    result.described.push_back(report.at("host"));
  }
  return result;
}

// Decides the same on every rank, because all are given the same reports.
void require_same_model(const fs::path& folder, const Manifest& manifest,
                        const Differences& differences, const LoadOptions& options) {
  std::set<std::string> missing, surplus;
  for (const std::string& name : differences.wanted) {
    if (!manifest.tensors.contains(name)) missing.insert("\"" + name + "\"");
  }
  for (const auto& [name, record] : manifest.tensors) {
    const bool ignored = std::ranges::any_of(
        options.ignored, [&](const std::string& prefix) { return name.starts_with(prefix); });
    if (!ignored && !differences.wanted.contains(name)) surplus.insert("\"" + name + "\"");
  }
  // On the names and before `strict` clears them: a hint for the user, not the decision.
  const size_t matching =
      differences.wanted.size() - missing.size() - differences.mismatches.size();
  const size_t most = std::max(differences.wanted.size(), manifest.tensors.size());
  if (!options.strict) {
    missing.clear();
    surplus.clear();
  }
  if (missing.empty() && surplus.empty() && differences.mismatches.empty()) return;
  throw CheckpointError(concat(
      folder.string(), ": does not fit the model", listed("missing", missing),
      listed("surplus", surplus), listed("with a different dtype or shape", differences.mismatches),
      matching * 2 < most ? "; this looks like a checkpoint of another model: compare the configs"
                          : ""));
}

// Reads an offloaded tensor, some rows at a time if it can be written so.
void read_offloaded(const Entry& entry, const mesh::Box& box, const TensorRecord& record,
                    Shards& shards) {
  const auto read = [&](const mesh::Box& part) {
    const at::Tensor values = at::empty(part.size, at::TensorOptions(entry.local.scalar_type()));
    shards.read_box(entry.name, record, part, values);
    return values;
  };
  const uint64_t row_bytes = row_bytes_of(box, c10::elementSize(record.dtype));
  if (!entry.offloaded->goes_by_rows() || row_bytes == 0) return entry.offloaded->write(read(box));
  // A block of 32 chunks is 32 MiB, which bounds the memory of a table on a disk.
  // Cut where chunks of any layout by rows are (cut_into_chunks()), so that none is read twice.
  constexpr int64_t kChunksAtOnce = 32;
  const int64_t most =
      kChunksAtOnce * std::max<int64_t>(1, static_cast<int64_t>(kChunkBytes / row_bytes));
  mesh::Box part = box;
  for (const mesh::Range& wanted : entry.offloaded->wanted_rows(box.size[0])) {
    part.offset[0] = box.offset[0] + wanted.offset;
    const int64_t end = part.offset[0] + wanted.size;
    while (part.offset[0] < end) {
      // The first part ends at a multiple; all others begin there.
      part.size[0] = std::min(most - part.offset[0] % most, end - part.offset[0]);
      entry.offloaded->write_rows(part.offset[0] - box.offset[0], read(part));
      part.offset[0] += part.size[0];
    }
  }
}

// Reads what no other rank of the host reads for this one.
void read_entry(const Entry& entry, const mesh::Box& box, const TensorRecord& record,
                const HostReads& host, Shards& shards) {
  if (entry.offloaded) return read_offloaded(entry, box, record, shards);
  // Patches come after the chunks of other ranks.
  shards.read_chunks(entry.name, record, box, entry.local,
                     [&](const Chunk& chunk) { return host.has(entry, chunk); });
}

// Reads the patches of tensors in memory, when all their chunks are there.
void read_patches(std::span<Entry> entries, const Manifest& manifest, Shards& shards,
                  const comm::Communicator& world, const Peers& peers) {
  for (const Entry& entry : entries) {
    peers.check();
    const auto found = manifest.tensors.find(entry.name);
    if (found == manifest.tensors.end() || entry.offloaded) continue;
    shards.read_patches(entry.name, found->second, entry.box(world.rank(), world.size()),
                        entry.local);
  }
}

bool is_in_any(const Piece& piece, const Manifest& manifest, const std::set<std::string>& files) {
  bool is_in = files.contains(piece.file);
  for_all_chunks(piece, [&](const Chunk& chunk) {
    // Also chunks that are linked from another checkpoint's file.
    is_in = is_in || files.contains(manifest.files.at(chunk.file).name);
  });
  return is_in;
}

// Bytes of the values in the piece's patches.
int64_t patched_bytes(const Piece& piece) {
  int64_t total = 0;
  for (const Patch& patch : piece.patches) {
    for (const Chunk& chunk : patch.values) total += static_cast<int64_t>(chunk.num_bytes);
  }
  return total;
}

std::string layout_text(const TensorRecord& record) {
  std::string text;
  for (size_t i = 0; i < record.axes.size() && i < record.placements.size(); ++i) {
    text += concat(i == 0 ? "" : ", ", record.axes[i].name, "=", record.axes[i].size, " ",
                   mesh::to_string(record.placements[i]));
  }
  return text.empty() ? "replicated" : text;
}

}  // namespace

std::string load(const fs::path& folder, std::span<Entry> entries, comm::Communicator& world,
                 const LoadOptions& options) {
  Manifest manifest;
  const auto describe = [&](const Peers&) {
    manifest = read_manifest(folder);
    const Differences mine = compare(manifest, entries, options);
    return json({{"wanted", mine.wanted},
                 {"mismatches", mine.mismatches},
                 {"host", HostReads::describe(folder, manifest, entries, world)}})
        .dump();
  };
  const auto [differences, described] = merge(gather_or_throw(world, describe, options.on_wait));
  require_same_model(folder, manifest, differences, options);

  Shards shards(folder, manifest);
  const HostReads host(manifest, described, world);
  const auto read = [&](const Peers& peers) {
    std::exception_ptr failure;
    // The loop is this rank's own work, so its errors wait until the others are served.
    try {
      for (const Entry& entry : entries) {
        peers.check();
        const auto found = manifest.tensors.find(entry.name);
        if (found == manifest.tensors.end()) continue;
        read_entry(entry, entry.box(world.rank(), world.size()), found->second, host, shards);
      }
    } catch (const CommError&) {
      // The group is dead: nobody can be served any more.
      throw;
    } catch (...) {  // the others still need what this rank reads for them
      failure = std::current_exception();
    }
    host.read(entries, shards, world, peers);
    if (failure) std::rethrow_exception(failure);
    read_patches(entries, manifest, shards, world, peers);
  };
  run_or_throw(world, read, options.on_wait);
  if (options.num_bytes_read != nullptr) *options.num_bytes_read = shards.num_bytes_read();
  return manifest.state;
}

at::Tensor load_tensor(const fs::path& folder, const std::string& name) {
  return read_tensor(folder, read_manifest(folder), name);
}

std::map<std::string, at::Tensor> load_global(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  Shards shards(folder, manifest);
  std::map<std::string, at::Tensor> tensors;
  for (const auto& [name, record] : manifest.tensors)
    tensors.emplace(name, shards.read(name, record));
  return tensors;
}

VerifyReport verify(const fs::path& folder) {
  VerifyReport report;
  Manifest manifest;
  try {
    // An error of a disk is not caught: it says nothing about the checkpoint.
    manifest = read_manifest(folder);
  } catch (const CheckpointError& error) {
    report.problems.push_back(error.what());
    return report;
  }
  Shards shards(folder, manifest);
  std::set<std::string> unreadable;
  for (const FileRecord& file : manifest.files) {
    ++report.num_files;
    // One unreadable file must not hide what is wrong in others.
    try {
      shards.open(file.name);
    } catch (const CheckpointError& error) {
      report.problems.push_back(error.what());
      unreadable.insert(file.name);
    }
  }
  for (const auto& [name, record] : manifest.tensors) {
    for (const Piece& piece : record.pieces) {
      ++report.num_pieces;
      if (is_in_any(piece, manifest, unreadable)) continue;  // told above
      try {
        shards.check(name, record, piece);
      } catch (const CheckpointError& error) {
        report.problems.push_back(error.what());
      }
      report.num_bytes += piece.box.numel() * static_cast<int64_t>(c10::elementSize(record.dtype)) +
                          patched_bytes(piece);
    }
  }
  return report;
}

Summary inspect(const fs::path& folder) {
  const Manifest manifest = read_manifest(folder);
  Summary summary{
      .step = manifest.step, .world_size = manifest.world_size, .state = manifest.state};
  for (const auto& [name, record] : manifest.tensors) {
    summary.num_elements += record.num_elements();
    summary.num_bytes += record.num_bytes();
    TensorSummary tensor{.name = name,
                         .dtype = dtype_name(record.dtype),
                         .shape = record.shape,
                         .num_bytes = record.num_bytes(),
                         .num_pieces = static_cast<int64_t>(record.pieces.size()),
                         .layout = layout_text(record)};
    for (const Piece& piece : record.pieces) {
      tensor.num_patches = std::max(tensor.num_patches, std::ssize(piece.patches));
      tensor.patched_bytes += patched_bytes(piece);
    }
    summary.tensors.push_back(std::move(tensor));
  }
  return summary;
}

}  // namespace trireme::checkpoint
