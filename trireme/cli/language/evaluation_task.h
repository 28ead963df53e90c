// What a language model is tried on: texts, for their bits per byte, or questions with several
// answers, of which the likeliest counts. A file of JSON lines is one task.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/dataset/tokenizer.h"
#include "trireme/model/likelihood.h"

namespace trireme::cli {

// A row {"text": ...} has one text; a row {"prompt": ..., "choices": [...], "answer": 0} as many as
// choices.
struct EvaluationRow {
  std::vector<model::AskedText> texts{};
  std::vector<size_t> num_bytes{};  // of what is asked of each text
  int64_t answer = -1;              // the right choice; -1: a row with one text
};

struct EvaluationTask {
  std::string name;  // the file's, without its ending
  bool has_choices = false;
  std::vector<EvaluationRow> rows{};
};

// limit: at most so many rows; 0: all
// Throws: ConfigError with file and line for a row of neither kind or of another than the first
//         one's, and for an answer that is no choice
EvaluationTask read_evaluation_task(const std::string& path, const dataset::Tokenizer& tokenizer,
                                    int64_t limit = 0);

// What the model says of a row's texts: sums over what is asked.
struct RowScore {
  std::vector<double> log_likelihoods{};  // in nats
  std::vector<bool> is_likeliest{};       // whether greedy decoding writes the text
};

struct EvaluationResult {
  std::string name;
  bool has_choices = false;
  int64_t num_rows = 0;
  // Of texts:
  int64_t num_tokens = 0;
  int64_t num_bytes = 0;
  double bits_per_byte = 0;
  double nats_per_token = 0;
  // Of choices: the share of rows whose answer is the likeliest choice, and with log-likelihoods
  // divided by the bytes of the choices; of equal ones the first counts. Standard errors of the
  // means.
  double accuracy = 0;
  double accuracy_error = 0;
  double normalised_accuracy = 0;
  double normalised_accuracy_error = 0;
};

// The choice of a row that counts as the model's.
size_t chosen(const EvaluationRow& row, const RowScore& score, bool by_byte);

// scores: one for each row
EvaluationResult evaluate_rows(const EvaluationTask& task, std::span<const RowScore> scores);

}  // namespace trireme::cli
