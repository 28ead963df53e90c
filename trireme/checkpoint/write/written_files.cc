#include "trireme/checkpoint/write/written_files.h"

#include <utility>

namespace trireme::checkpoint::inline internal {

Manifest joined(Manifest report, Manifest other, size_t num_shared) {
  const size_t own = report.files.size();
  for (auto& [name, record] : other.tensors) {
    for_all_chunks(record.pieces.at(0), [&](Chunk& chunk) {
      if (chunk.file >= num_shared) chunk.file += own - num_shared;
    });
  }
  report.tensors.merge(other.tensors);
  report.files.insert(report.files.end(), other.files.begin() + static_cast<int64_t>(num_shared),
                      other.files.end());
  return report;
}

Written complete_manifest(int64_t step, const std::string& state,
                          std::map<std::string, TensorRecord> plan,
                          std::span<const std::string> reports, const Sites& sites) {
  const int size = static_cast<int>(reports.size());
  Written written{{.step = step, .world_size = size, .state = state},
                  std::vector<FileNames>(sites.size())};
  Manifest& manifest = written.manifest;
  std::map<std::string, size_t> numbers;  // of files in the manifest
  const auto number_of = [&](const FileRecord& file) {
    const auto [number, is_new] = numbers.emplace(file.name, manifest.files.size());
    if (is_new) manifest.files.push_back(file);
    return number->second;
  };
  using Place = std::pair<std::string, std::vector<int64_t>>;  // of a box: tensor and offset
  std::map<Place, Piece> pieces;
  for (int rank = 0; rank < size; ++rank) {
    Manifest report = parse_manifest(reports[rank], "a rank's report");
    FileNames& used = written.used[sites.of(rank)];
    for (auto& [name, record] : report.tensors) {
      Piece& piece = record.pieces.at(0);
      for_all_chunks(piece, [&](Chunk& chunk) {
        const FileRecord& file = report.files.at(chunk.file);
        used.insert(file.name);
        chunk.file = number_of(file);
      });
      pieces[{name, piece.box.offset}] = std::move(piece);
    }
  }
  for (auto& [name, record] : plan) {
    for (Piece& piece : record.pieces) {
      Piece& stored = pieces.at({name, piece.box.offset});
      piece.chunks = std::move(stored.chunks);
      piece.patches = std::move(stored.patches);
    }
  }
  manifest.tensors = std::move(plan);
  return written;
}

std::vector<FileNames> with_replicas(const std::vector<FileNames>& used, int replicas) {
  std::vector<FileNames> wanted = used;
  for (size_t site = 0; site < used.size(); ++site) {
    for (int distance = 1; distance <= replicas; ++distance) {
      const FileNames& names = used[(site + used.size() - distance % used.size()) % used.size()];
      wanted[site].insert(names.begin(), names.end());
    }
  }
  return wanted;
}

}  // namespace trireme::checkpoint::inline internal
