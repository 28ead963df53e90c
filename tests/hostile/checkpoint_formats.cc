// Checkpoints (a manifest and tensor files, all with checksums), and tensor files by themselves.
#include <cstring>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>

#include <ATen/ops/arange.h>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/version_1.h"
#include "tests/hostile/format.h"
#include "tests/train/language_config.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/checkpoint/checkpoint.h"
#include "trireme/checkpoint/chunk/chunk.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/comm/shared/thread_group.h"
#include "trireme/train/config/config.h"
#include "trireme/train/state/run_state.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

std::string checksum_of(std::string_view bytes) {
  return checksum(std::as_bytes(std::span(bytes.data(), bytes.size())));
}

// A safetensors file in parts.
struct TensorFile {
  std::string header;  // JSON
  std::string data;

  static TensorFile of(const std::string& bytes) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof(size));
    return {bytes.substr(8, size), bytes.substr(8 + size)};
  }
  std::string prefix() const {
    const uint64_t size = header.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header;
  }
  std::string bytes() const { return prefix() + data; }
};

void damage_tensor_file(TensorFile& file, Random& random) {
  switch (random.below(4)) {
    case 0: damage_bytes(file.data, random); break;
    case 1: damage_text(file.header, random); break;
    default: file.header = damaged_json(ordered_json::parse(file.header), -1, random); break;
  }
  if (random.one_in(4)) file.header.resize((file.header.size() + 7) / 8 * 8, ' ');
}

class Safetensors : public Format {
 public:
  explicit Safetensors(const std::filesystem::path& folder) : path_(folder / "a.safetensors") {
    std::filesystem::create_directories(folder);
    checkpoint::write_safetensors(path_, {{"bias", at::arange(4, at::kFloat)},
                                          {"count", at::arange(3, at::kLong)},
                                          {"empty", at::arange(0, at::kByte)},
                                          {"weight", at::arange(12, at::kBFloat16).view({3, 4})}});
    valid_ = TensorFile::of(get_file(path_));
  }
  std::string name() const override { return "safetensors"; }

  void write(Random& random) override {
    TensorFile file = valid_;
    damage_tensor_file(file, random);
    std::string bytes = file.bytes();
    if (random.one_in(4)) damage_bytes(bytes, random);
    put_file(path_, bytes);
  }

  void read() override {
    expect_refusal_or_sense([&] {
      const checkpoint::SafetensorsReader reader(path_);
      for (const auto& info : reader.tensors()) {
        const at::Tensor copy = reader.read(info.name);
        require(static_cast<uint64_t>(copy.nbytes()) == info.end - info.begin,
                "a tensor whose size differs from its bytes");
        require(copy.sizes() == at::IntArrayRef(info.shape), "a tensor of another shape");
      }
    });
  }

 private:
  std::filesystem::path path_;
  TensorFile valid_;
};

// One field of a chunk as its text in the manifest.
void damage_chunk(std::string& text, Random& random) {
  auto chunk = checkpoint::parse_chunk(text);
  // Any character, or an end that is cut off.
  if (!chunk || random.one_in(4)) {
    if (random.one_in(4)) return text.resize(random.below(text.size() + 1));
    if (!text.empty()) text[random.below(text.size())] = static_cast<char>(' ' + random.below(95));
    return;
  }
  constexpr checkpoint::Codec kCodecs[] = {checkpoint::Codec::kRaw, checkpoint::Codec::kZstd,
                                           checkpoint::Codec::kZstdPlanes};
  const auto number = [&](uint64_t valid) {
    return random.one_in(2) ? edge_number(random) : valid + random.below(9) - 4;
  };
  switch (random.below(5)) {
    case 0: chunk->file = number(chunk->file); break;
    case 1: chunk->begin = number(chunk->begin); break;
    case 2: chunk->stored_bytes = number(chunk->stored_bytes); break;
    case 3: chunk->num_bytes = number(chunk->num_bytes); break;
    default: chunk->codec = random.pick(kCodecs); break;
  }
  if (chunk->codec != checkpoint::Codec::kRaw) chunk->stored_checksum.resize(16, '0');
  text = checkpoint::to_text(*chunk);
}

enum class Kind { kVersion1, kVersion2, kZstd, kPatched };

class Checkpoint : public Format {
 public:
  Checkpoint(const std::filesystem::path& folder, std::string name, Kind kind)
      : folder_(folder / "step-000007"), name_(std::move(name)), kind_(kind) {
    const train::RunState state{.step = 7,
                                .next_sample = 112,
                                .optimizer_steps = 7,
                                .config = train::to_toml(train::language_config())};
    const auto world = comm::make_thread_group(1);
    std::vector<checkpoint::Entry> entries;
    for (const auto& [name, tensor] : std::map<std::string, at::Tensor>{
             {"blocks.0.weight", at::arange(12, at::kFloat).view({3, 4})},
             {"count", at::arange(3, at::kLong)},
             {"optimizer.step", at::arange(1, at::kDouble).view({})},
             // Compress by planes, as they are, and not at all.
             {"planes", at::arange(700, at::kFloat)},
             // Of a patch of the weights.
             {"rows", at::arange(0, 4, 2, at::kLong)},
             {"values", at::arange(8, at::kFloat).view({2, 4})},
             {"whole", at::arange(3000).remainder(7).to(at::kByte)}}) {
      entries.push_back(
          {.name = name, .local = tensor, .layout = mesh::Layout(tensor.sizes().vec(), {}, {})});
    }
    const auto compression =
        kind == Kind::kZstd ? checkpoint::Compression::kZstd : checkpoint::Compression::kNone;
    checkpoint::save(folder, 7, entries, train::to_json(state), *world.front(),
                     {.fsync = false, .compression = compression});
    if (kind == Kind::kVersion1) checkpoint::to_version_1(folder_);
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      files_[entry.path().filename().string()] = get_file(entry.path());
    }
    const std::string manifest = std::exchange(files_["manifest.json"], "");
    files_.erase("manifest.json");
    manifest_ = ordered_json::parse(manifest);
    manifest_.erase("checksum");
    if (kind == Kind::kPatched) {
      manifest_["format_version"] = 3;
      add_patch(manifest_);
    }
  }
  std::string name() const override { return name_; }

  void write(Random& random) override {
    ordered_json manifest = manifest_;
    for (const auto& [name, valid] : files_) {
      std::string bytes = valid;
      if (random.one_in(4)) {
        TensorFile file = TensorFile::of(valid);
        damage_tensor_file(file, random);
        bytes = file.bytes();
        if (!random.one_in(6)) repair(manifest, name, file);
      }
      put_file(folder_ / name, bytes);
    }
    // Damaged row numbers get the digests of what is stored, so that they are looked at.
    if (kind_ == Kind::kPatched && !random.one_in(6)) add_patch(manifest);
    if (kind_ != Kind::kVersion1 && random.one_in(2)) damage_chunks(manifest, random);
    if (kind_ == Kind::kZstd && !random.one_in(6)) repair_chunks(manifest);
    std::string body = random.one_in(4) ? manifest.dump(1) : damaged_json(manifest, 1, random);
    body = body.starts_with("{\n") ? body.substr(2) + "\n" : body;
    const std::string sum = random.one_in(10) ? "0123456789abcdef" : checksum_of(body);
    std::string text = "{\"checksum\": \"" + sum + "\",\n" + body;
    if (random.one_in(20)) damage_bytes(text, random);
    put_file(folder_ / "manifest.json", text);
  }

  void read() override {
    expect_refusal_or_sense([&] { checkpoint::verify(folder_); });
    expect_refusal_or_sense([&] {
      const train::RunState state =
          train::parse_state(checkpoint::inspect(folder_).state, folder_.string());
      train::parse_config(state.config, folder_.string());
    });
    expect_refusal_or_sense([&] { checkpoint::load_global(folder_); });
    expect_refusal_or_sense([&] { checkpoint::list(folder_.parent_path()); });
  }

 private:
  // The rows of "values" replace those of the weights that "rows" names.
  static void add_patch(ordered_json& manifest) {
    ordered_json& tensors = manifest["tensors"];
    ordered_json patch = ordered_json::object();
    for (const char* key : {"rows", "values"}) patch[key] = tensors[key]["pieces"][0]["chunks"];
    tensors["blocks.0.weight"]["pieces"][0]["patches"] = ordered_json::array();
    tensors["blocks.0.weight"]["pieces"][0]["patches"].push_back(std::move(patch));
  }

  // Updates the manifest's sizes and checksums of a damaged file.
  static void repair(ordered_json& manifest, const std::string& name, const TensorFile& file) {
    for (ordered_json& record : manifest["files"]) {
      if (record["name"] != name) continue;
      record["bytes"] = file.bytes().size();
      record["header_checksum"] = checksum_of(file.prefix());
    }
    const ordered_json header = ordered_json::parse(file.header, nullptr, false);
    for (auto& [tensor, record] : manifest["tensors"].items()) {
      if (header.is_discarded() || !header.is_object() || !header.contains(tensor)) continue;
      const auto& entry = header[tensor];
      if (!entry.is_object() || !entry.contains("data_offsets")) continue;
      const auto& offsets = entry["data_offsets"];
      if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
          !offsets[1].is_number_unsigned()) {
        continue;
      }
      const auto first = offsets[0].get<uint64_t>(), last = offsets[1].get<uint64_t>();
      if (first > last || last > file.data.size()) continue;
      const auto bytes = std::string_view(file.data).substr(first, last - first);
      for (ordered_json& piece : record["pieces"]) {
        if (!piece.contains("chunks")) {
          piece["checksum"] = checksum_of(bytes);
          continue;
        }
        checkpoint::Chunk chunk{.begin = first,
                                .stored_bytes = bytes.size(),
                                .num_bytes = bytes.size(),
                                .digest = digest_of(std::as_bytes(std::span(bytes)))};
        piece["chunks"] = {checkpoint::to_text(chunk)};
      }
    }
  }

  static void for_each_chunk(ordered_json& manifest,
                             const std::function<void(std::string&)>& work) {
    for (ordered_json& record : manifest["tensors"]) {
      for (ordered_json& piece : record["pieces"]) {
        for (ordered_json& chunk : piece["chunks"]) work(chunk.get_ref<std::string&>());
        if (!piece.contains("patches")) continue;
        for (ordered_json& patch : piece["patches"]) {
          for (const char* key : {"rows", "values"}) {
            for (ordered_json& chunk : patch[key]) work(chunk.get_ref<std::string&>());
          }
        }
      }
    }
  }
  static void damage_chunks(ordered_json& manifest, Random& random) {
    for_each_chunk(manifest, [&](std::string& text) {
      if (random.one_in(3)) damage_chunk(text, random);
    });
  }
  // Damaged frames get the checksums of what is stored, so that they reach the decoder.
  void repair_chunks(ordered_json& manifest) const {
    const std::string data = TensorFile::of(get_file(folder_ / files_.begin()->first)).data;
    for_each_chunk(manifest, [&](std::string& text) {
      auto chunk = checkpoint::parse_chunk(text);
      if (!chunk || chunk->codec == checkpoint::Codec::kRaw || chunk->begin > data.size() ||
          chunk->stored_bytes > data.size() - chunk->begin)
        return;
      chunk->stored_checksum =
          checksum_of(std::string_view(data).substr(chunk->begin, chunk->stored_bytes));
      text = checkpoint::to_text(*chunk);
    });
  }

  std::filesystem::path folder_;
  std::string name_;
  Kind kind_;
  std::map<std::string, std::string> files_;  // without the manifest
  ordered_json manifest_;
};

}  // namespace

void add_checkpoint_formats(Formats& formats, const std::filesystem::path& folder) {
  formats.push_back(std::make_unique<Safetensors>(folder / "safetensors"));
  const auto add = [&](const std::string& name, Kind kind) {
    formats.push_back(std::make_unique<Checkpoint>(folder / name, name, kind));
  };
  add("checkpoint-1", Kind::kVersion1);
  add("checkpoint-2", Kind::kVersion2);
  add("checkpoint-3", Kind::kPatched);
  if (checkpoint::has_zstd()) add("checkpoint-zstd", Kind::kZstd);
}

}  // namespace trireme::hostile
