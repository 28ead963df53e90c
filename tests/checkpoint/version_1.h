// Checkpoints in format 1, which earlier programs wrote.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/checkpoint/signed_manifest.h"
#include "trireme/checkpoint/manifest.h"
#include "trireme/checkpoint/safetensors.h"

namespace trireme::checkpoint {

// Rewrites the manifest of a checkpoint whose boxes are all entries of their own files.
inline void to_version_1(const std::filesystem::path& folder) {
  edit_manifest(folder, [&](nlohmann::json& body) {
    body["format_version"] = 1;
    for (auto& [name, record] : body["tensors"].items()) {
      for (nlohmann::json& piece : record["pieces"]) {
        const Chunk chunk = parse_chunk(piece["chunks"].at(0).get<std::string>()).value();
        const std::string file = body["files"].at(chunk.file)["name"];
        piece.erase("chunks");
        piece["file"] = file;
        piece["checksum"] = checksum(SafetensorsReader(folder / file).bytes(name));
      }
    }
  });
}

}  // namespace trireme::checkpoint
