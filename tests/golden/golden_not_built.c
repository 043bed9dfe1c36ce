/* golden_not_built.c: the recorded operators that cflux does not have, each with the reason.
 *
 * A case of an operator in this table is skipped and counted; an operator that is neither here nor
 * in an operator table fails. "Op/form" is one form of an operator whose other forms run. A row
 * leaves this table when its operator is built.
 */
#include "golden.h"

#include <string.h>

/* The recorded weights of the RNN with relu do not give the recorded y. An RNN with relu is linear
 * where y > 0, and other weights give this y there, to 1e-15. */
#define RECURRENT "the recorded results belong to other weights than the recorded ones"
#define RESAMPLE                                                                                   \
    "resizing has no such form: another kernel, roundings, or a scale that gives no whole size"
#define RULE      "no such optimiser rule"
#define SHAPES    "its result's size depends on data; shapes never do here"
#define CONTROL   "control flow and containers are C's"
#define QUANTISED "no quantised arithmetic"
#define RANDOM    "the recorded numbers come from another random generator"
#define LINEAR    "no matrix decompositions"

static const struct not_built {
    const char *op, *why;
} not_built[] = {
    {"Adam/amsgrad", RULE},
    {"Bernoulli", RANDOM},
    {"BitShift", "no bitwise operations"},
    {"Compress", SHAPES},
    {"ConcatFromSequence", CONTROL},
    {"ConstantOfShape", "the recorded attribute does not keep its element type"},
    {"ConvInteger", QUANTISED},
    {"DequantizeLinear", QUANTISED},
    {"Det", LINEAR},
    {"Dropout/training", RANDOM},
    {"DynamicQuantizeLinear", QUANTISED},
    {"GRU", RECURRENT},
    {"GridSample/reflection", "grid_sample has no padding by reflection, as NNlib"},
    {"If", CONTROL},
    {"LSTM", RECURRENT},
    {"LSTM/peepholes", "Flux has no such form of the layer"},
    {"Loop", CONTROL},
    {"MatMulInteger", QUANTISED},
    {"Multinomial", RANDOM},
    {"NonMaxSuppression", SHAPES},
    {"NonZero", SHAPES},
    {"Optional", CONTROL},
    {"OptionalGetElement", CONTROL},
    {"OptionalHasElement", CONTROL},
    {"QLinearConv", QUANTISED},
    {"QLinearMatMul", QUANTISED},
    {"QuantizeLinear", QUANTISED},
    {"RAdam", "PyTorch rectifies where ρ > 5, Optimisers.jl where ρ > 4: step 5 differs"},
    {"RNN", RECURRENT},
    {"RandomNormalLike", RANDOM},
    {"RandomUniformLike", RANDOM},
    {"Resize/cubic", RESAMPLE},
    {"Resize/linear", RESAMPLE},
    {"Resize/nearest", RESAMPLE},
    {"RoiAlign", "no such operation"},
    {"SGD/dampening", RULE},
    {"Scan", CONTROL},
    {"SequenceAt", CONTROL},
    {"SequenceConstruct", CONTROL},
    {"SequenceInsert", CONTROL},
    {"SequenceLength", CONTROL},
    {"SequenceMap", CONTROL},
    {"SplitToSequence", CONTROL},
    {"StringNormalizer", "no strings"},
    {"TfIdfVectorizer", "no strings"},
    {"Unique", SHAPES},
    {"Upsample/linear", RESAMPLE},
    {"logdet", LINEAR},
    {"strings", "no strings"},
};

bool gold_not_built(gold_case *c, const char *op, const char *variant)
{
    char name[160];
    snprintf(name, sizeof name, "%s%s%s", op, variant ? "/" : "", variant ? variant : "");
    for (size_t i = 0; i < sizeof not_built / sizeof *not_built; i++) {
        if (strcmp(not_built[i].op, name) != 0)
            continue;
        c->not_built = not_built[i].op;
        c->not_built_why = not_built[i].why;
        return true;
    }
    return false;
}
