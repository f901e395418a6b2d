// tokenizer.json: writing it. load_tokenizer() (tokenizer.h) reads it.
#pragma once

#include <span>
#include <string>

#include "data/text/tokenizer.h"

namespace warpstep::data {

std::string json_of(const BytePairVocabulary& vocabulary);
std::string json_of(std::span<const std::string> characters);  // each one character of UTF-8

}  // namespace warpstep::data
