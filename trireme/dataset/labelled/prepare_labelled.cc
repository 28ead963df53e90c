#include "trireme/dataset/labelled/prepare_labelled.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/dataset/tokenizer.h"

#ifdef TRIREME_HAVE_TOKENIZER_JSON
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "trireme/base/file/folder.h"
#include "trireme/dataset/conversation/chat_format.h"
#include "trireme/dataset/labelled/class_names.h"
#include "trireme/dataset/labelled/labelled_text.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/row_files.h"
#include "trireme/dataset/text/row_lines.h"
#include "trireme/dataset/token_files.h"
#endif

namespace trireme::dataset {

#ifndef TRIREME_HAVE_TOKENIZER_JSON

PrepareLabelledReport prepare_labelled(const PrepareLabelledOptions&,
                                       const std::function<void(int64_t, int64_t)>&) {
  make_json_tokenizer("", "");  // says what is missing
  return {};
}

#else

namespace {

// The tokenizer of the model, which ends documents with the last of a text's tokens.
class TextEncoder {
 public:
  TextEncoder(const std::string& path, const std::string& end_of_document)
      : format_(read_chat_format({.tokenizer = path, .may_lack_template = true})) {
    const std::vector<std::string> begins = names("cls_token", {"[CLS]", "<s>"});
    std::vector<std::string> ends = names("sep_token", {"[SEP]", "</s>"});
    if (!end_of_document.empty()) ends = {end_of_document};
    for (const std::string& end : ends) {
      try {
        tokenizer_ = make_json_tokenizer(format_.tokenizer, end);
        break;
      } catch (const ConfigError&) {
        if (end == ends.back()) throw;
      }
    }
    for (const std::string& begin : begins) {
      if (!begin_) begin_ = tokenizer_->added_token(begin);
    }
    TRIREME_CHECK(
        begin_, format_.tokenizer_path,
        " has no added token [CLS] or <s>, which begins a text; expected the tokenizer of "
        "a model that classifies texts");
  }

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::vector<int32_t> encode(std::string_view text) const {
    std::vector<int32_t> tokens = tokenizer_->encode(text);
    tokens.insert(tokens.begin(), *begin_);
    tokens.push_back(tokenizer_->end_of_document());
    return tokens;
  }

 private:
  // The name that the model's files give the token, or else the usual ones.
  std::vector<std::string> names(const char* key, std::vector<std::string> usual) const {
    const auto found = format_.special_tokens.find(key);
    if (found != format_.special_tokens.end() && found->is_string())
      usual.insert(usual.begin(), found->get<std::string>());
    return usual;
  }

  ChatFormat format_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<int32_t> begin_;
};

LineForm line_form() { return {.most_bytes = kMaxLabelledTextBytes, .columns = kLabelledMembers}; }

// The classes of the rows for training.
ClassNames find_classes(const std::vector<Document>& files, const RowSplit& split,
                        const PrepareLabelledOptions& options) {
  std::set<std::string> labels;
  RowLines lines(files, line_form());
  int64_t index = 0;
  for (std::string_view line; lines.next(line); ++index) {
    if (split.is_validation(index, lines.draw(options.seed))) continue;
    labels.insert(read_labelled_text(line, lines.where()).label);
    TRIREME_CHECK(labels.size() <= kMaxTextClasses, lines.where(), ": the label is the ",
                  labels.size(), "th; expected at most ", kMaxTextClasses, " classes");
  }
  return ClassNames::of(labels, options.inputs.front());
}

}  // namespace

PrepareLabelledReport prepare_labelled(const PrepareLabelledOptions& options,
                                       const std::function<void(int64_t, int64_t)>& progress) {
  TRIREME_CHECK(
      !options.tokenizer_model.empty(),
      "labelled data has no tokenizer; give the model's folder or its tokenizer.json with "
      "--tokenizer-model");
  check_row_options(options.output, options.validation_fraction);
  const TextEncoder encoder(options.tokenizer_model, options.end_of_document);
  std::optional<WorkFolder> work;
  const std::vector<Document> files =
      find_row_files({.inputs = options.inputs, .may_be_columns = true, .stores = options.stores},
                     options.output, work);
  const RowSplit split = choose_split(files, {.fraction = options.validation_fraction,
                                              .seed = options.seed,
                                              .form = line_form(),
                                              .row = "row"});
  const ClassNames classes = find_classes(files, split, options);
  PrepareLabelledReport report{.classes = classes.names(),
                               .vocab_size = encoder.tokenizer().vocab_size()};
  for (const Document& file : files) report.num_bytes += file.size();
  TokenFile training(options.output, report.vocab_size, {.classes = classes.size()});
  std::optional<TokenFile> validation;
  if (split.fraction > 0) {
    validation.emplace(validation_prefix(options.output), report.vocab_size,
                       FilesBeside{.classes = classes.size()});
  }
  RowLines lines(files, line_form());
  int64_t index = 0;
  for (std::string_view line; lines.next(line); ++index) {
    const bool is_validation = split.is_validation(index, lines.draw(options.seed));
    const LabelledText row = read_labelled_text(line, lines.where());
    const std::vector<int32_t> tokens = encoder.encode(row.text);
    (is_validation ? *validation : training)
        .add_labelled(tokens, static_cast<int32_t>(classes.index(row.label, lines.where())));
    ++(is_validation ? report.validation_texts : report.texts);
    (is_validation ? report.validation_tokens : report.tokens) += std::ssize(tokens);
    report.longest_tokens = std::max<int64_t>(report.longest_tokens, std::ssize(tokens));
    if (progress) progress(lines.num_read(), report.num_bytes);
  }
  publish_token_files(options.output, encoder.tokenizer(), training,
                      validation ? &*validation : nullptr, {.classes = classes.text()});
  return report;
}

#endif

}  // namespace trireme::dataset
