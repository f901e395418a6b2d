// The text of tokens that arrive one after the other.
#pragma once

#include <cstdint>
#include <string>

#include "data/text/tokenizer.h"

namespace warpstep::data {

// A character may have its bytes in several tokens: they are held back until it is whole, or until
// the next byte shows that it is no UTF-8. The pieces together are the tokens' bytes.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // What can be shown now. Throws DataError for a token outside of the vocabulary.
  std::string add(std::int32_t token);
  // What was held back, after the last token.
  std::string rest();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
};

}  // namespace warpstep::data
