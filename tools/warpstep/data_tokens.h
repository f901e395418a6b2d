// The part of `warpstep data` for language models.
#pragma once

#include <string>

#include "tools/warpstep/command.h"

namespace warpstep::tools {

// Describes the tokens of a folder or file; `val_split` as data::TokenOptions has it.
int token_info(const std::string& spec, double val_split, bool json);

// Reads all tokens and reports an id that is not in the vocabulary.
int verify_tokens(const std::string& spec);

// warpstep data tokenize
Run declare_data_tokenize(Parser parser);

}  // namespace warpstep::tools
