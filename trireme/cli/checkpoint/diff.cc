// trireme checkpoint diff.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/locale/text.h"
#include "trireme/base/machine/machine.h"
#include "trireme/base/patterns.h"
#include "trireme/base/words.h"
#include "trireme/checkpoint/foreign/tensor_source.h"
#include "trireme/checkpoint/offline/saved_tensors.h"
#include "trireme/checkpoint/offline/tensor_diff.h"
#include "trireme/checkpoint/safetensors.h"
#include "trireme/cli/command_options.h"
#include "trireme/cli/commands.h"
#include "trireme/cli/console.h"
#include "trireme/cli/terminal_text.h"
#include "trireme/train/state/saved_run.h"
#include "trireme/train/state/state_changes.h"

namespace trireme::cli {

// A side is opened as a checkpoint of Trireme first and then as tensors of another program; a path
// that is neither is refused with both reasons. The states of runs are compared only if both sides
// have one. Tensors are read in parts, since a small manifest may declare a tensor of many GiB, and
// freed memory is returned at once, as glibc would keep what parts have taken. Both forms of output
// are made from one Diff.

namespace {

using checkpoint::Diff;
using checkpoint::SavedTensors;
using checkpoint::TensorDiff;
using nlohmann::json;

struct DiffArguments {
  std::string a;
  std::string b;
  std::string patterns;  // separated by commas; empty: every tensor
  double tolerance = 0;
  bool json = false;
};

// One of the two sides: a checkpoint of Trireme, or tensors that another program wrote.
class Side {
 public:
  explicit Side(const std::string& path) : path_(path) {
    std::string reason;
    try {
      path_ = train::find_checkpoint(path);
    } catch (const CheckpointError& error) {
      reason = error.what();
    }
    if (reason.empty()) {
      own_ = std::make_unique<SavedTensors>(path_);
      return;
    }
    try {
      foreign_ = checkpoint::open_tensors(path_);
    } catch (const CheckpointError& error) {
      throw CheckpointError(concat(reason, "; nor tensors of another program: ", error.what()));
    }
  }

  const checkpoint::TensorSource& tensors() const { return own_ ? *own_ : *foreign_; }
  const SavedTensors* own() const { return own_.get(); }  // null: of another program
  train::SavedState state() const { return {own_->state(), path_}; }

  json to_json() const {
    json object = {{"path", path_.string()}, {"kind", tensors().kind()}};
    if (own_) object.update({{"step", own_->step()}, {"ranks", own_->num_ranks()}});
    return object;
  }
  std::string to_text() const {
    const std::string path = printable(path_.string());
    if (!own_) return concat(path, ": ", tensors().kind());
    return concat(path, ": step ", own_->step(), ", saved by ", own_->num_ranks(), " ranks");
  }

 private:
  std::filesystem::path path_;
  std::unique_ptr<SavedTensors> own_;
  std::unique_ptr<checkpoint::TensorSource> foreign_;
};

checkpoint::DiffOptions options_of(const DiffArguments& arguments) {
  checkpoint::DiffOptions options{.tolerance = arguments.tolerance};
  if (arguments.patterns.empty()) return options;
  options.wanted = [patterns = split_list(arguments.patterns, ',')](const auto& name) {
    return std::ranges::any_of(patterns,
                               [&](const std::string& pattern) { return matches(pattern, name); });
  };
  return options;
}

json to_json(const TensorDiff& tensor) {
  json object = {{"name", tensor.name},
                 {"dtype_a", checkpoint::dtype_name(tensor.a.dtype)},
                 {"dtype_b", checkpoint::dtype_name(tensor.b.dtype)},
                 {"shape_a", tensor.a.shape},
                 {"shape_b", tensor.b.shape},
                 {"differs", tensor.is_beyond()}};
  if (!tensor.same_form()) return object;
  const checkpoint::ValueDiff& values = tensor.values;
  object["elements"] = values.num_elements;
  object["different"] = values.num_different;
  object["beyond_tolerance"] = values.num_beyond;
  object["not_finite"] = values.num_not_finite;
  object["max_absolute"] = values.max_absolute;
  object["max_relative"] = values.max_relative;
  if (values.max_ulp) object["max_ulp"] = *values.max_ulp;
  if (values.cosine) object["cosine"] = *values.cosine;
  if (values.first)
    object["first"] = {
        {"index", values.first->index}, {"a", values.first->a}, {"b", values.first->b}};
  return object;
}

json to_json(const Side& a, const Side& b, const Diff& diff,
             const std::vector<train::StateChange>& state, double tolerance) {
  json object = {{"a", a.to_json()},
                 {"b", b.to_json()},
                 {"same", diff.is_same()},
                 {"tolerance", tolerance},
                 {"compared", diff.num_compared},
                 {"bytes", diff.num_bytes},
                 {"only_in_a", diff.only_in_a},
                 {"only_in_b", diff.only_in_b},
                 {"tensors", json::array()},
                 {"state", json::array()}};
  for (const TensorDiff& tensor : diff.tensors) object["tensors"].push_back(to_json(tensor));
  for (const train::StateChange& change : state) {
    object["state"].push_back(
        {{"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
  return object;
}

std::string form_of(const checkpoint::SourceTensor& tensor) {
  return checkpoint::dtype_name(tensor.dtype) + " " + shape_text(tensor.shape);
}

void print(const TensorDiff& tensor) {
  const std::string name = printable(tensor.name);
  if (!tensor.same_form()) {
    std::printf("differs  %s: %s in A, %s in B\n", name.c_str(), form_of(tensor.a).c_str(),
                form_of(tensor.b).c_str());
    return;
  }
  const checkpoint::ValueDiff& values = tensor.values;
  std::string text =
      format("%lld of %lld elements, max |a-b| %.3g, relative %.3g",
             static_cast<long long>(values.num_different),
             static_cast<long long>(values.num_elements), values.max_absolute, values.max_relative);
  if (values.max_ulp)
    text += format(", %llu ULP", static_cast<unsigned long long>(*values.max_ulp));
  if (values.cosine) text += format(", cosine %.9g", *values.cosine);
  if (values.num_not_finite > 0)
    text += format(", %lld not finite", static_cast<long long>(values.num_not_finite));
  std::printf("%-8s %s %s: %s\n", tensor.is_beyond() ? "differs" : "within", name.c_str(),
              form_of(tensor.a).c_str(), text.c_str());
  if (values.first) std::printf("         %s\n", values.first->text().c_str());
}

std::string or_none(const std::string& value) {
  return value.empty() ? "(none)" : printable(shown(value));
}

void print(const Side& a, const Side& b, const Diff& diff,
           const std::vector<train::StateChange>& state) {
  std::printf("A        %s\nB        %s\n", a.to_text().c_str(), b.to_text().c_str());
  for (const train::StateChange& change : state) {
    std::printf("state    %s: %s -> %s\n", printable(change.key).c_str(),
                or_none(change.before).c_str(), or_none(change.after).c_str());
  }
  for (const std::string& name : diff.only_in_a)
    std::printf("only A   %s\n", printable(name).c_str());
  for (const std::string& name : diff.only_in_b)
    std::printf("only B   %s\n", printable(name).c_str());
  for (const TensorDiff& tensor : diff.tensors) print(tensor);
  const auto num_within = static_cast<long long>(diff.tensors.size()) - diff.num_beyond();
  std::printf("tensors  %lld compared, %s: ", static_cast<long long>(diff.num_compared),
              human_bytes(static_cast<double>(diff.num_bytes)).c_str());
  if (diff.is_same() && num_within == 0) {
    std::printf("every bit is the same\n");
    return;
  }
  std::printf("%lld differ", static_cast<long long>(diff.num_beyond()));
  if (num_within > 0) std::printf(", %lld within the tolerance", num_within);
  std::printf("; %zu only in A, %zu only in B\n", diff.only_in_a.size(), diff.only_in_b.size());
}

int diff_checkpoints(const DiffArguments& arguments, const train::Offer& offer) {
  set_freed_memory(FreedMemory::kReturned);  // parts of tensors, one after the other
  const Side a(arguments.a), b(arguments.b);
  std::vector<train::StateChange> state;
  if (a.own() && b.own()) state = train::state_changes(a.state(), b.state(), offer);
  checkpoint::DiffOptions options = options_of(arguments);
  Diff diff;
  {
    ProgressBar bar("compare");
    if (!arguments.json)
      options.on_progress = [&bar](int64_t done, int64_t total) { bar.update(done, total); };
    diff = checkpoint::diff(a.tensors(), b.tensors(), options);
  }
  if (arguments.json) {
    std::printf("%s\n", json_text(to_json(a, b, diff, state, arguments.tolerance)).c_str());
  } else {
    print(a, b, diff, state);
  }
  return diff.is_same() ? kDone : kDiffers;
}

}  // namespace

void add_checkpoint_diff(CLI::App& group, int& exit_code, const train::Offer& offer) {
  auto arguments = std::make_shared<DiffArguments>();
  CLI::App* command = group.add_subcommand(
      "diff",
      "Compare two checkpoints, of any layouts: which tensors differ, where they differ first\n"
      "and by how much, and how config, step and data differ.\n"
      "  trireme checkpoint diff runs/a runs/b\n"
      "  trireme checkpoint diff runs/a runs/b --tensors 'model.layers.0.*' --tolerance 1e-6\n"
      "Tensors of other programs, such as an exported folder, are compared by name. Only\n"
      "differences between tensors affect the exit code. See docs/guide/checkpoints.md.\n");
  command->footer(
      "Exit codes, as for diff(1): 0 the tensors are equal, 1 they differ (or a bug), 2 an\n"
      "error you can fix (arguments, files), 4 a checkpoint is unusable.");
  command->add_option("A", arguments->a, "folder of a run, one of its checkpoints, or safetensors")
      ->required();
  command->add_option("B", arguments->b, "the other one, in any of these forms")->required();
  command->add_option("--tensors", arguments->patterns,
                      "compare only tensors whose names match, such as '*.weight,optimizer.*': * "
                      "matches any text, ? one character, [ab] one of these");
  command
      ->add_option("--tolerance", arguments->tolerance,
                   "allowed |a-b|, relative to the largest |value| of the tensor in A and B; 0 = "
                   "bits must be equal")
      ->check(within({.minimum = 0, .maximum = 1e9}));
  add_json(*command, arguments->json);
  command->callback(
      [arguments, offer, &exit_code] { exit_code = diff_checkpoints(*arguments, offer); });
}

}  // namespace trireme::cli
