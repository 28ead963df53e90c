// BERT: attention in both directions, a layer norm behind the embedding and behind each branch,
// learned positions, biases, and a head of a dense layer, GELU, a norm and the embedding with a
// bias. With model.classes the head reads the first token of a text instead: a dense layer and tanh
// (the pooler), dropout, and the classifier. All tokens have the first token type. The
// next-sentence head is left out.
// Source: Devlin et al. 2018, arXiv:1810.04805, sections 3, 3.1 and 4.1
#pragma once

#include <memory>

#include "trireme/model/family/family.h"
#include "trireme/model/family/network.h"
#include "trireme/model/layers/attention.h"
#include "trireme/model/layers/dropout.h"
#include "trireme/model/layers/embedding.h"
#include "trireme/model/layers/feed_forward.h"
#include "trireme/model/layers/linear.h"
#include "trireme/model/layers/norm.h"
#include "trireme/model/layers/transformer_block.h"

namespace trireme::model {

// norm(x + attention(x)), then the same with the feed-forward.
class BertBlock : public TransformerBlock {
 public:
  // layer: the block's number in the whole model.
  BertBlock(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype, int64_t layer);

 private:
  at::Tensor compute(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<Attention> attention_;
  std::shared_ptr<LayerNorm> attention_norm_;
  std::shared_ptr<GeluFeedForward> feed_forward_;
  std::shared_ptr<LayerNorm> norm_;
};

// The sum of the embeddings of token, position and the first token type.
class BertEmbeddings : public torch::nn::Module {
 public:
  BertEmbeddings(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Shapes: tokens_BT [B, T] int64 -> [B, T, D], or its rows as the tensor axis holds them
  at::Tensor forward(const at::Tensor& tokens_BT, const TokenBatch& batch);

  std::shared_ptr<TokenEmbedding> words;
  std::shared_ptr<PositionEmbedding> positions;
  at::Tensor types_YD;              // [model.token_types, D]; whole on every rank
  std::shared_ptr<LayerNorm> norm;  // of the sum; not in forward()

 private:
  parallel::TensorAxis axis_;
};

// norm(gelu(dense(x))), and the bias of the logits.
class BertHead : public torch::nn::Module {
 public:
  BertHead(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Each rank of the tensor axis does it for the rows that it holds, with the whole weights.
  // Shapes: x [B, T, D], or its rows as the tensor axis holds them -> the same
  at::Tensor forward(const at::Tensor& x);
  std::vector<at::Tensor> transform_parameters() const;

  at::Tensor bias_V;              // [v]
  std::shared_ptr<Linear> dense;  // [D, D]
  std::shared_ptr<LayerNorm> norm;

 private:
  parallel::TensorAxis axis_;
};

// tanh(dense(x)) of the first token of each text, after dropout.
class BertPooler : public torch::nn::Module {
 public:
  BertPooler(const ModelConfig& config, const ModelAxes& axes, at::ScalarType dtype);
  // Every rank of the tensor axis does it for all texts. Of the context axis only the first rank
  // has first tokens; the others have no rows.
  // Shapes: x [B, t, D], or its rows as the tensor axis holds them -> [B, D], or [0, D]
  // Comm:   as parallel::pick_rows() of B rows
  at::Tensor forward(const at::Tensor& x, const TokenBatch& batch);

  std::shared_ptr<Linear> dense;  // [D, D]

 private:
  parallel::TensorAxis axis_;
  int64_t sequence_length_;
  Dropout dropout_;
};

// Embeddings, blocks and head, as far as the part has them.
class Bert : public Network {
 public:
  Bert(const ModelConfig& config, const ModelAxes& axes, const ModelPart& part,
       at::ScalarType dtype);

 private:
  at::Tensor embed(const at::Tensor& tokens_BT, const TokenBatch& batch) override;
  at::Tensor embedding_norm(const at::Tensor& x, const TokenBatch& batch) override;
  at::Tensor last_norm(const at::Tensor& x, const TokenBatch& batch) override;

  std::shared_ptr<BertEmbeddings> embeddings_;  // null: the part does not embed
  Dropout dropout_;                             // behind the norm of the embeddings
  std::shared_ptr<BertHead> head_;              // null: the part has no head that predicts tokens
  std::shared_ptr<BertPooler> pooler_;          // null: it has none that classifies
};

// The plan splits matrices by heads, feed-forward rows and vocabulary. Norms, positions, token
// types, the head's dense layer, pooler, classifier and the biases of layers that sum over ranks
// are whole on every rank.
const Family& bert_family();

}  // namespace trireme::model
