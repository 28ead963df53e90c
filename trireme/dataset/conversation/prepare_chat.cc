#include "trireme/dataset/conversation/prepare_chat.h"

#include <algorithm>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/dataset/tokenizer.h"

#ifdef TRIREME_HAVE_TOKENIZER_JSON
#include "trireme/base/file/folder.h"
#include "trireme/base/words.h"
#include "trireme/dataset/conversation/chat_encoder.h"
#include "trireme/dataset/conversation/chat_format.h"
#include "trireme/dataset/conversation/chat_images.h"
#include "trireme/dataset/conversation/conversation.h"
#include "trireme/dataset/prepare.h"
#include "trireme/dataset/row_files.h"
#include "trireme/dataset/text/row_lines.h"
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

// The image tokens and images of a line.
class LineImages {
 public:
  LineImages(const PrepareChatOptions& options, const Tokenizer& tokenizer)
      : options_({.image_size = options.image_size,
                  .patch_size = options.patch_size,
                  .folder = options.image_folder}) {
    if (!is_on()) return;
    TRIREME_CHECK(options.lines == ChatLines::kConversations,
                  "--image-size is set and the lines are pairs of answers; expected conversations "
                  "(--format chat)");
    TRIREME_CHECK(options_.patch_size > 0 && options_.image_size % options_.patch_size == 0,
                  "--patch-size is ", options_.patch_size, " and --image-size ",
                  options_.image_size, "; expected a divisor of it");
    const std::optional<int32_t> token = tokenizer.added_token(kImagePlace);
    TRIREME_CHECK(token, options.tokenizer_model, " has no added token ", kImagePlace,
                  ", whose places images take; add it to tokenizer.json");
    token_ = *token;
  }

  bool is_on() const { return options_.is_on(); }
  // Adds the images to `file`, and their tokens to `document`; returns how many there are.
  int64_t add(std::string_view line, const RowLines& lines, ChatTokens& document,
              TokenFile& file) const {
    const std::string where = lines.where();
    const std::vector<std::string> paths = images_of_line(line, where);
    document =
        with_image_tokens(document, token_, options_.tokens_per_image(), paths.size(), where);
    const std::filesystem::path folder =
        options_.folder.empty() ? lines.folder() : std::filesystem::path(options_.folder);
    for (const std::string& path : paths) {
      TRIREME_CHECK(!is_url((folder / path).string()), where, " has the image ", shown(path),
                    " beside a file of a store; expected images on this machine: give their folder "
                    "with --images");
      file.add_image(read_chat_image(folder / path, options_.image_size, where));
    }
    return std::ssize(paths);
  }

 private:
  ChatImageOptions options_;
  int32_t token_ = -1;
};

void check_chat_options(const PrepareChatOptions& options) {
  TRIREME_CHECK(!options.tokenizer_model.empty(),
                "chat data has no tokenizer; give the model's folder or its tokenizer.json with "
                "--tokenizer-model");
  check_row_options(options.output, options.validation_fraction);
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
  const std::vector<Document> files =
      find_row_files({.inputs = options.inputs, .may_be_columns = true, .stores = options.stores},
                     options.output, work);
  LineForm form{.most_bytes = kMaxConversationBytes, .columns = kConversationMembers};
  if (options.lines == ChatLines::kPreferences) form.columns = kPreferenceMembers;
  const RowSplit split = choose_split(files, {.fraction = options.validation_fraction,
                                              .seed = options.seed,
                                              .form = form,
                                              .row = "conversation"});

  PrepareChatReport report{.vocab_size = encoder.vocab_size(),
                           .is_marked = format.chat.marks_generation()};
  for (const Document& file : files) report.num_bytes += file.size();
  const auto tokenizer = make_json_tokenizer(format.tokenizer, int64_t{encoder.end_of_document()});
  const LineImages images(options, *tokenizer);
  TokenFile training(options.output, report.vocab_size, {.mask = true, .images = images.is_on()});
  std::optional<TokenFile> validation;
  if (split.fraction > 0) {
    validation.emplace(validation_prefix(options.output), report.vocab_size,
                       FilesBeside{.mask = true, .images = images.is_on()});
  }
  RowLines lines(files, form);
  int64_t index = 0;
  for (std::string_view line; lines.next(line); ++index) {
    const bool is_validation = split.is_validation(index, lines.draw(options.seed));
    TokenFile& file = is_validation ? *validation : training;
    ChatCounts& counts = is_validation ? report.validation : report.training;
    ++counts.lines;
    for (ChatTokens& tokens : documents_of(line, options.lines, encoder, lines.where())) {
      if (images.is_on()) counts.images += images.add(line, lines, tokens, file);
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
  publish_token_files(options.output, *tokenizer, training, validation ? &*validation : nullptr,
                      {.chat_template = format.template_text});
  return report;
}

#endif

}  // namespace trireme::dataset
