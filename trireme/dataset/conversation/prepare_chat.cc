#include "trireme/dataset/conversation/prepare_chat.h"

#include <algorithm>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/dataset/tokenizer.h"

#ifdef TRIREME_HAVE_TOKENIZER_JSON
#include "trireme/base/file/folder.h"
#include "trireme/base/random/random.h"
#include "trireme/dataset/conversation/chat_encoder.h"
#include "trireme/dataset/conversation/chat_format.h"
#include "trireme/dataset/conversation/conversation.h"
#include "trireme/dataset/documents.h"
#include "trireme/dataset/file/text_lines.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/token_files.h"
#include "trireme/dataset/token_stream.h"
#endif

namespace trireme::dataset {

#ifndef TRIREME_HAVE_TOKENIZER_JSON

PrepareChatReport prepare_chat(const PrepareChatOptions&,
                               const std::function<void(int64_t, int64_t)>&) {
  make_json_tokenizer("", "");  // says what is missing
  return {};
}

#else

namespace {

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t") == std::string_view::npos;
}

// The conversations of all files, one at a time.
class ConversationLines {
 public:
  explicit ConversationLines(const std::vector<Document>& files) : files_(files) { open(); }

  // The next line that is not blank; false after the last.
  bool next(std::string_view& line) {
    while (file_ < files_.size()) {
      while (lines_->next(line)) {
        if (is_blank(line)) continue;
        ++number_;
        return true;
      }
      done_ += files_[file_].size();
      ++file_;
      open();
    }
    return false;
  }

  std::string where() const { return lines_->where(); }
  int64_t num_read() const { return done_ + (lines_ ? lines_->num_read() : 0); }
  // Between 0 and 1, of (seed, file name, number of the conversation in it).
  double draw(uint64_t seed) const {
    return random_uniform(random_key(seed, concat("validation/", files_[file_].name, "/", number_)),
                          0);
  }

 private:
  void open() {
    lines_.reset();
    number_ = -1;
    if (file_ == files_.size()) return;
    lines_.emplace(files_[file_].path, TextOrigin::kUser, kMaxConversationBytes);
  }

  const std::vector<Document>& files_;
  size_t file_ = 0;
  std::optional<TextLines> lines_;
  int64_t number_ = -1;  // of the conversation in its file
  int64_t done_ = 0;     // bytes of the files before it
};

// Which conversations are for validation: those with a draw below the fraction, and at least one on
// either side.
struct ChatSplit {
  double fraction = 0;
  int64_t lowest = -1;   // the conversation with the lowest draw, over all files
  int64_t highest = -1;  // and the one with the highest

  bool is_validation(int64_t index, double draw) const {
    if (fraction == 0 || index == highest) return false;
    return index == lowest || draw < fraction;
  }
};

ChatSplit choose_split(const std::vector<Document>& files, const PrepareChatOptions& options) {
  ChatSplit split{.fraction = options.validation_fraction};
  if (split.fraction == 0) return split;
  ConversationLines lines(files);
  double low = 2, high = -1;
  int64_t count = 0;
  for (std::string_view line; lines.next(line); ++count) {
    const double draw = lines.draw(options.seed);
    if (draw < low) split.lowest = count;
    if (draw >= high) split.highest = count;
    low = std::min(low, draw);
    high = std::max(high, draw);
  }
  TRIREME_CHECK(count != 1, options.inputs.front(), " has 1 conversation, too few to set ",
                split.fraction,
                " of them aside for validation; give more, or set --validation-fraction 0");
  return split;
}

std::vector<Document> find_files(const PrepareChatOptions& options,
                                 std::optional<WorkFolder>& work) {
  const DocumentOptions wanted = {.inputs = options.inputs,
                                  .globs = {"*.jsonl", "*.ndjson", "*.jsonl.gz", "*.ndjson.gz"},
                                  .ignored = prepared_paths(options.output),
                                  .as_text = true};
  std::vector<Document> files = find_documents(wanted);
  make_prefix_folder(options.output);
  work.emplace(options.output);  // keeps another preparation away from this output
  keep_pipes(files, wanted, work->path());
  return files;
}

// The documents that a line becomes, with the bytes of their loss masks.
std::vector<ChatTokens> documents_of(std::string_view line, ChatLines kind,
                                     const ChatEncoder& encoder, const std::string& where) {
  const std::string& text = encoder.format().template_text;
  if (kind == ChatLines::kConversations) {
    return {encoder.encode(read_conversation(line, text, where), where)};
  }
  const Preference pair = read_preference(line, text, where);
  std::vector<ChatTokens> documents;
  if (pair.is_text()) {
    for (const std::string* const answer : {&pair.chosen_text, &pair.rejected_text}) {
      documents.push_back(encoder.encode_answer(pair.prompt, *answer, where));
    }
  } else {
    for (const Conversation* const conversation : {&pair.chosen, &pair.rejected}) {
      documents.push_back(encoder.encode_answer(*conversation, pair.num_prompt, where));
    }
  }
  for (const ChatTokens& tokens : documents) {
    // The first token of a document is no target.
    TRIREME_CHECK(
        std::find(tokens.learnt.begin() + 1, tokens.learnt.end(), 1) != tokens.learnt.end(), where,
        ": an answer has no token behind the first one of its text; expected a "
        "prompt and an answer");
  }
  static_assert(kLearntToken == 1);
  std::ranges::replace(documents.back().learnt, 1, static_cast<int32_t>(kRejectedToken));
  return documents;
}

void check_chat_options(const PrepareChatOptions& options) {
  TRIREME_CHECK(!options.tokenizer_model.empty(),
                "chat data has no tokenizer; give the model's folder or its tokenizer.json with "
                "--tokenizer-model");
  TRIREME_CHECK(options.validation_fraction >= 0 && options.validation_fraction < 1,
                "validation_fraction is ", options.validation_fraction,
                ", expected at least 0 and below 1");
  TRIREME_CHECK(!options.output.empty() && options.output.back() != '/', "output is \"",
                options.output, "\", expected a prefix of file names such as data/chat");
}

}  // namespace

PrepareChatReport prepare_chat(const PrepareChatOptions& options,
                               const std::function<void(int64_t, int64_t)>& progress) {
  check_chat_options(options);
  const ChatEncoder encoder(
      read_chat_format({.tokenizer = options.tokenizer_model,
                        .chat_template = options.chat_template,
                        .may_lack_template = options.lines == ChatLines::kPreferences}),
      options.end_of_document, options.now);
  const ChatFormat& format = encoder.format();
  std::optional<WorkFolder> work;
  const std::vector<Document> files = find_files(options, work);
  const ChatSplit split = choose_split(files, options);

  PrepareChatReport report{.vocab_size = encoder.vocab_size(),
                           .is_marked = format.chat.marks_generation()};
  for (const Document& file : files) report.num_bytes += file.size();
  TokenFile training(options.output, report.vocab_size, /*has_mask=*/true);
  std::optional<TokenFile> validation;
  if (split.fraction > 0) {
    validation.emplace(validation_prefix(options.output), report.vocab_size, true);
  }
  ConversationLines lines(files);
  int64_t index = 0;
  for (std::string_view line; lines.next(line); ++index) {
    const bool is_validation = split.is_validation(index, lines.draw(options.seed));
    TokenFile& file = is_validation ? *validation : training;
    ChatCounts& counts = is_validation ? report.validation : report.training;
    ++counts.lines;
    for (const ChatTokens& tokens : documents_of(line, options.lines, encoder, lines.where())) {
      file.add_document(tokens.tokens, tokens.learnt);
      const int64_t trained = std::ssize(tokens.learnt) - std::ranges::count(tokens.learnt, 0);
      counts.tokens += std::ssize(tokens.tokens);
      counts.trained_tokens += trained;
      report.longest_tokens = std::max<int64_t>(report.longest_tokens, std::ssize(tokens.tokens));
      report.untrained += trained == 0 ? 1 : 0;
    }
    if (progress) progress(lines.num_read(), report.num_bytes);
  }
  TRIREME_CHECK(report.training.trained_tokens > 0, options.inputs.front(), " has ", index,
                options.lines == ChatLines::kPreferences
                    ? " pairs of answers; expected lines with \"chosen\" and \"rejected\""
                    : " conversations, and none for training in which the assistant says "
                      "something; expected messages with the role \"assistant\"");
  const auto tokenizer = make_json_tokenizer(format.tokenizer, int64_t{encoder.end_of_document()});
  publish_token_files(options.output, *tokenizer, training, validation ? &*validation : nullptr,
                      format.template_text);
  return report;
}

#endif

}  // namespace trireme::dataset
