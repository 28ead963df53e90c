#include "trireme/tasks/language/foreign/class_labels.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "trireme/base/bounded_json.h"
#include "trireme/base/error.h"
#include "trireme/base/file/file.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/manifest.h"

namespace trireme::tasks {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxClassesBytes = size_t{64} << 20;
constexpr JsonLimits kClassesLimits{.max_bytes = kMaxClassesBytes, .max_values = size_t{1} << 20};

// folder: a run, or a checkpoint of one, whose path may be relative or end in a slash
fs::path classes_of_run(const fs::path& folder) {
  if (!is_file(folder / checkpoint::kManifestName)) return folder / kClassesFile;
  std::error_code missing;
  return fs::weakly_canonical(folder / ".", missing).parent_path().parent_path() / kClassesFile;
}

// Numbers 0 to C - 1, or LABEL_0 to LABEL_<C - 1>, are no names.
bool are_numbers(const std::vector<std::string>& names, const std::string& prefix) {
  for (size_t i = 0; i < names.size(); ++i) {
    if (names[i] != prefix + std::to_string(i)) return false;
  }
  return true;
}

// id2label in the order of its numbers; empty where it has others than 0 to C - 1.
std::vector<std::string> labels_in(const fs::path& config) {
  const nlohmann::json root =
      parse_json(read_file(config, kMaxClassesBytes), config.string(), kClassesLimits);
  const auto found = JsonView(root, config.string()).find("id2label");
  if (!found || !found->value().is_object()) return {};
  std::vector<std::string> names;
  for (size_t i = 0; i < found->value().size(); ++i) {
    const auto name = found->find(std::to_string(i));
    if (!name || !name->value().is_string()) return {};
    names.push_back(name->text());
  }
  return names;
}

}  // namespace

dataset::ClassNames read_classes(const fs::path& path, const FilePlace& place) {
  const std::string name = path.string();
  const std::unique_ptr<ByteSource> file = place.find(name);
  TRIREME_CHECK(file, name,
                " does not exist; make it with `trireme data prepare --format labelled`");
  return dataset::ClassNames::parse(read_all(*file, kMaxClassesBytes), name);
}

std::string checksum_of(std::string_view text) {
  return checksum(std::as_bytes(std::span(text.data(), text.size())));
}

void require_same_classes(const fs::path& folder, const dataset::ClassNames& classes) {
  const fs::path config = folder / "config.json", run = classes_of_run(folder);
  std::vector<std::string> theirs;
  std::string source;
  if (is_file(config)) {
    theirs = labels_in(config);
    source = config.string();
  } else if (is_file(run)) {
    theirs = read_classes(run).names();
    source = run.string();
  }
  // Other numbers of classes are refused with the weights.
  if (std::ssize(theirs) != classes.size()) return;
  const std::vector<std::string>& ours = classes.names();
  if (are_numbers(theirs, "LABEL_") || are_numbers(theirs, "") || are_numbers(ours, "")) return;
  for (size_t i = 0; i < ours.size(); ++i) {
    TRIREME_CHECK(
        ours[i] == theirs[i], "class ", i, " of the data is ", in_quotes(ours[i], 60), ", and of ",
        source, " ", in_quotes(theirs[i], 60),
        "; expected the same classes in the same order: give the rows the numbers of that "
        "model's classes as labels");
  }
}

std::string with_labels(const fs::path& checkpoint, std::string kept) {
  const fs::path run = classes_of_run(checkpoint);
  if (!is_file(run)) return kept;
  const dataset::ClassNames classes = read_classes(run);
  nlohmann::json object =
      kept.empty() ? nlohmann::json::object() : nlohmann::json::parse(std::move(kept));
  // Numbers stand for the names of the imported model.
  if (are_numbers(classes.names(), "") && object.contains("id2label")) return object.dump();
  nlohmann::json names = nlohmann::json::object(), numbers = nlohmann::json::object();
  for (int64_t i = 0; i < classes.size(); ++i) {
    const std::string& name = classes.names()[static_cast<size_t>(i)];
    names[std::to_string(i)] = name;
    numbers[name] = i;
  }
  object["id2label"] = std::move(names);
  object["label2id"] = std::move(numbers);
  return object.dump();
}

}  // namespace trireme::tasks
