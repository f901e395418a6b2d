// The text of tokens that arrive one after the other.
#pragma once

#include <cstdint>
#include <string>

#include "data/text/tokenizer.h"

namespace warpstep::data {

// A character may have its bytes in several tokens: they are held back until it is whole, or until
// the next byte shows that it is no UTF-8. The pieces together are the tokens' bytes, up to the
// first occurrence of `stop`, if that is not empty.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, std::string stop = {})
      : tokenizer_(tokenizer), stop_(std::move(stop)) {}
  // What can be shown now; nothing once the text is stopped. Throws DataError for a token outside
  // of the vocabulary.
  std::string add(std::int32_t token);
  bool stopped() const { return stopped_; }
  // What was held back, after the last token.
  std::string rest();

 private:
  const Tokenizer& tokenizer_;
  std::string stop_;
  std::string held_;
  bool stopped_ = false;
};

}  // namespace warpstep::data
