// Rows of labelled texts, and the classes that they have.
#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "tests/hostile/format.h"
#include "trireme/base/words.h"
#include "trireme/dataset/labelled/class_names.h"
#include "trireme/dataset/labelled/labelled_text.h"

namespace trireme::hostile {
namespace {

using nlohmann::ordered_json;

class Labelled : public Format {
 public:
  std::string name() const override { return "labelled"; }

  void write(Random& random) override {
    ordered_json row = {{"text", "s\u00e9 \n"}, {"label", "positive"}};
    if (random.one_in(2)) row["label"] = static_cast<int64_t>(edge_number(random));
    row_ = damaged_json(row, -1, random);
    if (random.one_in(4)) damage_bytes(row_, random);
    const ordered_json classes = {{"classes", {"negative", "positive", "7", "\u00fc"}}};
    classes_ = damaged_json(classes, -1, random);
    if (random.one_in(4)) damage_bytes(classes_, random);
  }

  void read() override {
    dataset::LabelledText row;
    const bool has_row =
        expect_refusal_or_sense([&] { row = dataset::read_labelled_text(row_, "a.jsonl:7"); });
    if (has_row) {
      require(!row.label.empty() && is_printable(row.label, dataset::kMaxLabelBytes),
              "a label that may not be quoted");
    }
    expect_refusal_or_sense([&] {
      const auto classes = dataset::ClassNames::parse(classes_, "classes.json");
      require(classes.size() >= 2, "fewer than two classes");
      require(dataset::ClassNames::parse(classes.text(), "classes.json").names() == classes.names(),
              "does not read what it wrote");
      for (int64_t i = 0; i < std::min<int64_t>(classes.size(), 100); ++i) {
        require(classes.index(classes.names()[i], "a.jsonl:7") == i, "another class's index");
      }
      if (has_row) classes.index(row.label, "a.jsonl:7");
    });
  }

 private:
  std::string row_;
  std::string classes_;
};

}  // namespace

void add_labelled_formats(Formats& formats) { formats.push_back(std::make_unique<Labelled>()); }

}  // namespace trireme::hostile
