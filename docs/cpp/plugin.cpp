// The parts of own.cpp for `warpstep train --plugin`.
#include <array>

#include "data/load/plugin.h"
#include "models/plugin.h"
#include "own.h"

using namespace warpstep;

static const std::array all{own::model};
static const std::array transforms{
    data::PluginTransform{"solarize", own::solarize_usage,
                          "inverts bytes from it on, in half of the images", own::make_solarize}};
static const std::array formats{
    data::Format{"train.csv and test.csv", own::has_csv, own::open_csv}};

WARPSTEP_PLUGIN(all)
WARPSTEP_DATA_PLUGIN(.transforms = transforms, .formats = formats)
